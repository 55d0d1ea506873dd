{{- /* What every Pod of ours has: the profile `restricted`. */}}
{{- define "pod.security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "probes" -}}
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{- /* Variables that controller and gateway share, and have to agree on. */}}
{{- define "env.resources" -}}
- name: SANDBOX_DEFAULT_REQUESTS
  value: {{ include "pairs" .requests | quote }}
- name: SANDBOX_DEFAULT_LIMITS
  value: {{ include "pairs" .limits | quote }}
- name: SANDBOX_MAX_RESOURCES
  value: {{ include "pairs" .maxResources | quote }}
- name: SANDBOX_MAX_RESOURCE_FACTOR
  value: {{ .maxResourceFactor | quote }}
{{- end }}

{{- define "env.common" -}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: BASE_URL
  value: {{ .Values.baseUrl | quote }}
- name: URL_FORM
  value: {{ .Values.urlForm | quote }}
- name: LOG_FORMAT
  value: {{ .Values.logFormat | quote }}
- name: RUST_LOG
  value: {{ .Values.logLevel | quote }}
- name: SANDBOX_IMAGE_BUILDS
  value: {{ .Values.sandboxes.imageBuilds | quote }}
{{- if eq .Values.sandboxes.imageBuilds "full" }}
- name: SANDBOX_BUILD_NAMESPACE
  value: {{ .Values.builds.namespace | quote }}
{{- end }}
{{- with .Values.tracing }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
- name: OTEL_TRACES_SAMPLER
  value: parentbased_traceidratio
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .samplerRatio | quote }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME)
{{- if .headers.existingSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ .headers.existingSecret }}, key: {{ .headers.secretField }}}}
{{- end }}
{{- end }}
{{- end }}
{{- if not .Values.sandboxes.allNamespaces }}
- name: SANDBOX_NAMESPACE
  value: {{ include "sandboxes" . | quote }}
{{- end }}
{{- end }}

{{- /* Where Pods go: (dict "pods" .Values.gateway) */}}
{{- define "placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- /* Replicas apart where possible: (list . "gateway" .Values.gateway.topologySpreadConstraints) */}}
{{- define "spread" -}}
{{- with index . 2 }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- else }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Values that cannot work end the render with a sentence. Types and names are checked by values.schema.json. */}}
{{- define "check" -}}
{{- $v := .Values -}}
{{- if not $v.baseUrl }}{{ fail "baseUrl is missing: it is the URL under which clients reach the gateway, for example https://sandboxes.example.com" }}{{ end -}}
{{- if not (regexMatch "^https?://[A-Za-z0-9.-]+(:[0-9]+)?/?$" $v.baseUrl) }}{{ fail (printf "baseUrl is %q: it must be a scheme and a host without a path, for example https://sandboxes.example.com" $v.baseUrl) }}{{ end -}}
{{- if eq $v.urlForm "loopback" }}{{ fail "urlForm is loopback: that is for clients on the gateway's own machine; take nested, flat or path" }}{{ end -}}
{{- if not (has $v.urlForm (list "nested" "flat" "path")) }}{{ fail (printf "urlForm is %q: it must be nested, flat or path" $v.urlForm) }}{{ end -}}
{{- if and (eq $v.urlForm "flat") (not (contains "." (include "host" .))) }}{{ fail (printf "urlForm is flat: the host of %s has no parent domain that a wildcard could stand for" $v.baseUrl) }}{{ end -}}
{{- if and (has $v.urlForm (list "nested" "flat")) (regexMatch "^[0-9.]+$" (include "host" .)) }}{{ fail (printf "urlForm is %s: an address such as %s has no names below it; take path" $v.urlForm (include "host" .)) }}{{ end -}}

{{- range $what, $amounts := dict "sandboxes.requests" $v.sandboxes.requests "sandboxes.limits" $v.sandboxes.limits "sandboxes.maxResources" $v.sandboxes.maxResources "sandboxes.quota" $v.sandboxes.quota }}
{{- range $name, $amount := $amounts }}{{ include "check.quantity" (list (printf "%s.%s" $what $name) $amount) }}{{ end }}
{{- end -}}
{{- include "check.quantity" (list "sandboxes.workspace.size" $v.sandboxes.workspace.size) -}}
{{- with $v.apiKeys.maxCpu }}{{ include "check.quantity" (list "apiKeys.maxCpu" .) }}{{ end -}}
{{- with $v.apiKeys.maxMemory }}{{ include "check.quantity" (list "apiKeys.maxMemory" .) }}{{ end -}}
{{- range list "idleTimeout" "maxRunTime" "startTimeout" "deletePausedAfter" "deleteStoppedAfter" "warmResumeFor" }}
{{- $duration := index $v.sandboxes . -}}
{{- if not (regexMatch "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$" $duration) }}{{ fail (printf "sandboxes.%s is %q: write it as 90s, 20m or 24h; 0s is never" . $duration) }}{{ end }}
{{- end -}}
{{- if le (float64 $v.sandboxes.maxResourceFactor) 0.0 }}{{ fail (printf "sandboxes.maxResourceFactor is %v: it must be greater than 0" $v.sandboxes.maxResourceFactor) }}{{ end -}}
{{- if and $v.sandboxes.createNamespace (eq (include "sandboxes" .) .Release.Namespace) }}{{ fail "sandboxes.createNamespace is true: name another namespace than the release's in sandboxes.namespace" }}{{ end -}}

{{- if eq $v.sandboxes.imageBuilds "full" -}}
{{- if has $v.builds.namespace (list (include "sandboxes" .) .Release.Namespace) }}{{ fail (printf "builds.namespace is %q: builds need a namespace of their own" $v.builds.namespace) }}{{ end -}}
{{- range list "cpu" "memory" "disk" }}{{ include "check.quantity" (list (printf "builds.%s" .) (index $v.builds .)) }}{{ end -}}
{{- end -}}

{{- with $v.tracing.endpoint }}
{{- if not (regexMatch "^https?://[^/?#@]+" .) }}{{ fail (printf "tracing.endpoint is %q: it must be a URL of OTLP over HTTP, for example http://collector.monitoring:4318" .) }}{{ end }}
{{- end -}}

{{- if lt (int $v.controller.replicas) 1 }}{{ fail (printf "controller.replicas is %v: one at least has to act" $v.controller.replicas) }}{{ end -}}
{{- if $v.gateway.autoscaling.enabled -}}
{{- if lt (int $v.gateway.autoscaling.minReplicas) 1 }}{{ fail (printf "gateway.autoscaling.minReplicas is %v: one at least has to answer" $v.gateway.autoscaling.minReplicas) }}{{ end -}}
{{- if gt (int $v.gateway.autoscaling.minReplicas) (int $v.gateway.autoscaling.maxReplicas) }}{{ fail (printf "gateway.autoscaling.minReplicas is %v and maxReplicas %v: the fewest must not be more than the most" $v.gateway.autoscaling.minReplicas $v.gateway.autoscaling.maxReplicas) }}{{ end -}}
{{- else if lt (int $v.gateway.replicas) 1 }}{{ fail (printf "gateway.replicas is %v: one at least has to answer" $v.gateway.replicas) }}{{ end -}}

{{- if and $v.apiKeys.records $v.apiKeys.create }}{{ fail "apiKeys.records and apiKeys.create exclude each other: the next upgrade would take the key away that was made; set apiKeys.create to false" }}{{ end -}}
{{- range $at, $record := $v.apiKeys.records }}
{{- if not (regexMatch "^[0-9a-f]{64}$" (toString $record.sha256)) }}{{ fail (printf "apiKeys.records[%d].sha256 is no SHA-256 in hexadecimal digits: it is the hash of a key, not the key" $at) }}{{ end }}
{{- end -}}
{{- if and $v.gateway.proxyProtocol (not $v.gateway.trustedProxies) }}{{ fail "gateway.proxyProtocol is true: name the proxies in gateway.trustedProxies" }}{{ end -}}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.parentRefs) }}{{ fail "httpRoute.enabled is true: name the Gateways it belongs to in httpRoute.parentRefs" }}{{ end -}}
{{- if and $v.pool.enabled (not (dig "template" "image" "" $v.pool.spec)) }}{{ fail "pool.enabled is true: the pool needs an image in pool.spec.template.image" }}{{ end -}}
{{- if and $v.uninstall.purge $v.sandboxes.allNamespaces }}{{ fail "uninstall.purge is true: purge knows one namespace, and sandboxes.allNamespaces serves all; delete the sandboxes with kubectl first" }}{{ end -}}
{{- range $at, $map := $v.sandboxes.extraConfigMaps }}
{{- if not (hasPrefix "/" (toString $map.path)) }}{{ fail (printf "sandboxes.extraConfigMaps[%d].path is %q: it must begin with /" $at (toString $map.path)) }}{{ end }}
{{- end -}}
{{- end }}

{{- define "check.quantity" -}}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$" (toString (index . 1))) }}{{ fail (printf "%s is %q: it is no quantity, such as 500m, 2 or 10Gi" (index . 0) (toString (index . 1))) }}{{ end -}}
{{- end }}

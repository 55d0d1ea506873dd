// newuidmap and newgidmap of the image buildkit, set-uid: give the user namespace of the caller's process the ids of
// the command line. Debian's need CAP_SYS_ADMIN, which a container has not: the kernel wants the map to be written by
// the user that the namespace belongs to. For tests only: no range of ids is checked.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
	char text[4096] = "", path[64];
	size_t length = 0;
	for (int i = 2; i < argc && length < sizeof text; i++)
		length += snprintf(text + length, sizeof text - length, "%s%c", argv[i], i % 3 == 1 ? '\n' : ' ');
	if (argc < 5 || argc % 3 != 2 || length >= sizeof text || strspn(argv[1], "0123456789") != strlen(argv[1]))
		return 2;
	snprintf(path, sizeof path, "/proc/%.10s/%s", argv[1], strstr(argv[0], "newgidmap") ? "gid_map" : "uid_map");
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct caps[2] = {{.effective = 1 << CAP_SETUID | 1 << CAP_SETGID}};
	caps[0].permitted = caps[0].effective;
	if (seteuid(getuid()) || syscall(SYS_capset, &header, caps)) {
		perror("giving up root");
		return 1;
	}
	int file = open(path, O_WRONLY | O_CLOEXEC);
	if (file < 0 || write(file, text, length) != (ssize_t)length) {
		perror(path);
		return 1;
	}
	return 0;
}

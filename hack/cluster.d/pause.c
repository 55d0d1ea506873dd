/* Holds a pod's namespaces open: sleeps, collects the dead, and leaves when told. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal) { (void)signal; _exit(0); }
static void collect(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0) {} }

int main(void) {
	signal(SIGTERM, leave);
	signal(SIGINT, leave);
	signal(SIGCHLD, collect);
	for (;;) pause();
}

#include "sandbox/terminal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/mem.h"

static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};

/* A signal handler reaches no state but static one. Written before the handlers are there, constant while they are. */
static struct {
	int fd;
	struct termios modes;
	struct sigaction old[ARRAY_SIZE(fatal_signals)];
} saved = {.fd = -EBADF};

static void restore_and_die(int number)
{
	(void) tcsetattr(saved.fd, TCSANOW, &saved.modes); /* async-signal-safe (signal-safety(7)) */
	(void) raise(number);                              /* SA_RESETHAND has put the default back */
}

static void catch_fatal(bool on)
{
	struct sigaction action = {.sa_handler = restore_and_die, .sa_flags = (int) SA_RESETHAND | SA_NODEFER};

	for (size_t i = 0; i < ARRAY_SIZE(fatal_signals); i++)
		(void) sigaction(fatal_signals[i], on ? &action : &saved.old[i], on ? &saved.old[i] : NULL);
}

int terminal_enter(struct terminal *t)
{
	struct termios modes;

	if (t->fd < 0 || !t->keys || t->raw || tcgetpgrp(t->fd) != getpgrp())
		return 0;
	if (tcgetattr(t->fd, &modes) < 0)
		return -errno;
	saved.fd = t->fd;
	saved.modes = modes;
	catch_fatal(true);
	cfmakeraw(&modes);
	t->raw = true;
	/* Not TCSAFLUSH: keys typed ahead are for the program inside. */
	if (tcsetattr(t->fd, TCSADRAIN, &modes) < 0) {
		int err = errno;

		terminal_leave(t);
		return -err;
	}
	return 0;
}

void terminal_leave(struct terminal *t)
{
	if (!t->raw)
		return;
	t->raw = false;
	/* Now in the background (SIGTTOU is blocked): the shell has the terminal and its own idea of the modes. */
	if (tcgetpgrp(t->fd) == getpgrp())
		(void) tcsetattr(t->fd, TCSADRAIN, &saved.modes);
	catch_fatal(false);
	saved.fd = -EBADF;
}

int terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_columns)
{
	struct winsize size;

	if (ioctl(fd, TIOCGWINSZ, &size) < 0)
		return -errno;
	if (size.ws_row == 0 || size.ws_col == 0)
		return -ENODATA;
	*ret_rows = size.ws_row;
	*ret_columns = size.ws_col;
	return 0;
}

void terminal_send_end(int master)
{
	struct termios modes;
	char end = 4; /* ^D */

	if (tcgetattr(master, &modes) == 0) {
		if ((modes.c_lflag & ICANON) == 0)
			return;
		end = (char) modes.c_cc[VEOF];
	}
	(void) !write(master, &end, 1);
}

/* What `solo` executes first, before Python: it hands on which signals it inherited as ignored.

   Python ignores SIGPIPE and SIGXFSZ at its start, so no line of Python can see what they were before, and the parent
   may ignore them for itself alone. Execute SCRIPT with the answer as its first word, a mask in hexadecimal like SigIgn
   in proc(5), and the words of solo behind it. Nothing else changes, neither the environment nor a descriptor. */

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static struct iovec piece(const char *text)
{
    return (struct iovec){(void *)text, strlen(text)};
}

int main(int count, char **words)
{
    static char *const masks[] = {"0", "1000", "1000000", "1001000"}; /* bit 12: SIGPIPE, bit 24: SIGXFSZ */
    int rest = count > 0 ? count - 1 : 0;
    char *script[rest + 3];

    script[0] = SCRIPT;
    script[1] = masks[is_ignored(SIGPIPE) + 2 * is_ignored(SIGXFSZ)];
    memcpy(script + 2, words + count - rest, (rest + 1) * sizeof *script);
    execv(SCRIPT, script);
    struct iovec line[] = {piece("solo: cannot start " SCRIPT ": "), piece(strerror(errno)), piece("\n")};
    return writev(2, line, 3), 125;
}

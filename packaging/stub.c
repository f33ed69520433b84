/* What `solo` executes first, before Python: it hands on which signals it inherited as ignored.

   Python ignores SIGPIPE and SIGXFSZ at its start, so no line of Python can see what they were before, and the parent
   may ignore them for itself alone. Execute SCRIPT with the answer as its first word, a mask in hexadecimal like SigIgn
   in proc(5), and the words of solo behind it. Nothing else changes, neither the environment nor a descriptor.

   Where BARE is defined it needs no C library, whose start takes twice as long as all of this. */

#include <signal.h>
#include <sys/syscall.h>

#if defined BARE && defined __x86_64__
static long call(long number, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return number;
}
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call start\n");
#elif defined BARE && defined __aarch64__
static long call(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
__asm__(".globl _start\n_start: mov x0, sp\n bl start\n");
#elif defined BARE
#error "no system calls without a C library"
#else
#include <errno.h>
#include <unistd.h>
#define call(number, a, b, c, d) (syscall(number, a, b, c, d) < 0 ? -errno : 0)
#endif

static int is_ignored(int number)
{
    long action[32]; /* the kernel's struct sigaction begins with the handler */
    return call(SYS_rt_sigaction, number, 0, (long)action, 8) == 0 && action[0] == (long)SIG_IGN;
}

static void print(const char *text)
{
    long size = 0;
    while (text[size])
        size++;
    call(SYS_write, 2, (long)text, size, 0);
}

static int run(long count, char **words, char **environment)
{
    static char *const masks[] = {"0", "1000", "1000000", "1001000"}; /* bit 12: SIGPIPE, bit 24: SIGXFSZ */
    char *script[count + 2];
    long at = 2, error;

    script[0] = SCRIPT;
    script[1] = masks[is_ignored(SIGPIPE) + 2 * is_ignored(SIGXFSZ)];
    for (long from = 1; from < count; from++)
        script[at++] = words[from];
    script[at] = 0;
    error = call(SYS_execve, (long)SCRIPT, (long)script, (long)environment, 0);
    print("solo: cannot start " SCRIPT ": ");
    print(error == -2 ? "No such file or directory\n" : error == -7 ? "Argument list too long\n" : "it cannot be executed\n");
    return 125;
}

#ifdef BARE
__attribute__((used, noreturn)) void start(long *stack)
{
    call(SYS_exit_group, run(stack[0], (char **)stack + 1, (char **)stack + stack[0] + 2), 0, 0, 0);
    __builtin_unreachable();
}
#else
int main(int count, char **words, char **environment)
{
    return run(count, words, environment);
}
#endif

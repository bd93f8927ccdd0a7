// event.exe EVENT PROGRAM ARGUMENTS: runs a program, and for each line of standard input gives it an event of the console: 0 Ctrl-C,
// 1 Ctrl-Break, 2 the end of the console. The exit code is that of the program.
//
// An event is a thread in the program that runs CtrlRoutine of kernelbase, as Windows itself does it: GenerateConsoleCtrlEvent of
// wine 8 fails.
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

int main(int count, char **words) {
    STARTUPINFOA how = {.cb = sizeof how, .dwFlags = STARTF_USESTDHANDLES};
    PROCESS_INFORMATION program;
    // What follows the event. The name of this program has no space.
    char *command = GetCommandLineA();
    for (int skipped = 0; command && skipped < 2; skipped++)
        if ((command = strchr(command, ' '))) command++;
    // The program gets no input.
    how.hStdInput = INVALID_HANDLE_VALUE;
    how.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    how.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    if (!command || !CreateProcessA(NULL, command, NULL, NULL, TRUE, 0, NULL, NULL, &how, &program)) {
        fprintf(stderr, "not started: %lu\n", GetLastError());
        return 127;
    }
    void *routine = GetProcAddress(GetModuleHandleA("kernelbase.dll"), "CtrlRoutine");
    void *event = (void *)(size_t)atoi(words[1]);
    for (int byte; (byte = getchar()) != EOF;)
        if (byte == '\n' && (!routine || !CreateRemoteThread(program.hProcess, NULL, 0, routine, event, 0, NULL)))
            fprintf(stderr, "no event: %lu\n", GetLastError());
    WaitForSingleObject(program.hProcess, INFINITE);
    DWORD code = 1;
    GetExitCodeProcess(program.hProcess, &code);
    return code;
}

import { type ChildProcess, spawn } from 'node:child_process'
import { Socket } from 'node:net'

// The code of the child process. It reads lines of three kinds from its stdin: add <signal> <process group>, drop <process group>, and dir <path>.
// When this process ends, even by SIGKILL, the kernel closes the child's stdin. Then the child ends every remaining process group, first with the
// given signal and after ten seconds with SIGKILL, and removes the directories.
const program = `
groups=''
dirs=''
while read -r verb one two; do
  case "$verb" in
    add) groups="$groups $one:$two" ;;
    drop) left=''
      for each in $groups; do [ "\${each#*:}" = "$one" ] || left="$left $each"; done
      groups="$left" ;;
    dir) dirs="$dirs$one\${two:+ $two}
" ;;
  esac
done
for each in $groups; do kill -s "\${each%%:*}" -- "-\${each#*:}" 2>/dev/null; done
for tenth in $(seq 100); do
  alive=''
  for each in $groups; do kill -0 -- "-\${each#*:}" 2>/dev/null && alive=yes; done
  [ -z "$alive" ] && break
  sleep 0.1
done
for each in $groups; do kill -s KILL -- "-\${each#*:}" 2>/dev/null; done
# Files may still be written while they are removed, by a process that is just ending or by a child in another group.
printf '%s' "$dirs" | while read -r each; do
  for tenth in $(seq 100); do rm -rf -- "$each" && break; sleep 0.1; done
done
`

let reaper: ChildProcess | undefined

function tell(line: string): void {
  if (!reaper) {
    reaper = spawn('/bin/sh', ['-c', program], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] })
    // The child must neither keep this process alive nor end it.
    reaper.unref()
    reaper.on('error', () => {})
    reaper.stdin?.on('error', () => {})
    if (reaper.stdin instanceof Socket) reaper.stdin.unref()
  }
  reaper.stdin?.write(`${line}\n`)
}

/**
 * Ends a process group when this process ends in any way.
 *
 * @param pid leader of a separate process group (`detached: true`)
 * @returns a function to call when the group has ended
 */
export function reapWithUs(pid: number, signal: 'TERM' | 'INT' = 'TERM'): () => void {
  tell(`add ${signal} ${pid}`)
  return () => tell(`drop ${pid}`)
}

/** Removes a directory when this process ends in any way. */
export function removeWithUs(path: string): void {
  tell(`dir ${path}`)
}

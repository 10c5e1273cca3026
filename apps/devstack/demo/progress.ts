import type { Writable } from 'node:stream'

export type Progress = {
  say: (line: string) => void
  /** Starts a step. Call the returned function with the number of finished parts. */
  count: (label: string, total: number) => (done: number) => void
}

const barWidth = 30

/** Shows a progress bar on a terminal. In a file, prints a line at each tenth. */
export function createProgress(stream: Writable & { isTTY?: boolean }): Progress {
  const say = (line: string) => void stream.write(`${line}\n`)
  return {
    say,
    count: (label, total) => {
      let tenth = -1
      let finished = false
      return (done) => {
        if (finished) return
        finished = done >= total
        const share = total === 0 ? 1 : Math.min(done / total, 1)
        if (stream.isTTY) {
          const full = Math.round(share * barWidth)
          const bar = '█'.repeat(full) + '░'.repeat(barWidth - full)
          stream.write(`\r\x1b[2K  ${label} ${bar} ${done}/${total}${finished ? '\n' : ''}`)
        } else if (Math.floor(share * 10) > tenth) {
          tenth = Math.floor(share * 10)
          say(`  ${label} ${done}/${total}`)
        }
      }
    },
  }
}

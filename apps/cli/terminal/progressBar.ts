import type { WriteStream } from 'node:tty'

export type ProgressBar = {
  /** Shows progress. @param total undefined if unknown; then a count is shown instead of a bar. */
  update: (label: string, done: number, total?: number) => void
  /** Removes the bar. */
  clear: () => void
}

const width = 28
const minimumIntervalMs = 80

/** Creates a progress bar on a terminal. Elsewhere (a pipe, CI), it shows nothing. */
export function createProgressBar(stream: WriteStream, now: () => number = Date.now): ProgressBar {
  if (!stream.isTTY) return { update: () => {}, clear: () => {} }
  let drawnAt = 0
  let drawnLabel = ''
  return {
    update(label, done, total) {
      const isLast = done === total
      if (!isLast && label === drawnLabel && now() - drawnAt < minimumIntervalMs) return
      drawnAt = now()
      drawnLabel = label
      stream.write(`\r\u001b[K${drawBar(label, done, total)}`)
    },
    clear() {
      stream.write('\r\u001b[K')
    },
  }
}

function drawBar(label: string, done: number, total?: number): string {
  if (total === undefined) return `${label} ${done}`
  const share = total === 0 ? 1 : Math.min(done / total, 1)
  const filled = Math.round(share * width)
  const bar = `${'█'.repeat(filled)}${'░'.repeat(width - filled)}`
  return `${label.padEnd(12)} ${bar} ${String(Math.floor(share * 100)).padStart(3)}%  ${done}/${total}`
}

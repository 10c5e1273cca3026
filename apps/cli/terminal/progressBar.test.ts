import type { WriteStream } from 'node:tty'
import { describe, expect, test } from 'vitest'
import { createProgressBar } from './progressBar.ts'

/** A terminal that records each written text, without the control characters that clear the line. */
function terminal(isTTY = true) {
  const written: string[] = []
  const stream = { isTTY, write: (text: string) => written.push(text) } as unknown as WriteStream
  return { stream, lines: () => written.map((text) => text.replace('\r\u001b[K', '')) }
}

describe('createProgressBar', () => {
  test('default: draws a bar at most every 80 ms, and always at the end', () => {
    let now = 0
    const { stream, lines } = terminal()
    const bar = createProgressBar(stream, () => now)
    for (const [time, done] of [
      [0, 0],
      [10, 1],
      [90, 2],
      [100, 4],
    ] as const) {
      now = time
      bar.update('On chain', done, 4)
    }
    bar.clear()
    expect(lines().map((line) => line.match(/\d+\/4/)?.[0])).toEqual(['0/4', '2/4', '4/4', undefined])
    expect(lines()[1]).toBe(`On chain     ${'█'.repeat(14)}${'░'.repeat(14)}  50%  2/4`)
  })

  test('args: shows a count if there is no total', () => {
    const { stream, lines } = terminal()
    createProgressBar(stream).update('Transfers', 12)
    expect(lines()).toEqual(['Transfers 12'])
  })

  test('behavior: draws nothing if the stream is not a terminal', () => {
    const { stream, lines } = terminal(false)
    const bar = createProgressBar(stream)
    bar.update('On chain', 1, 2)
    bar.clear()
    expect(lines()).toEqual([])
  })
})

import { expect, test, vi } from 'vitest'
import { discardBody } from './unreadBody.ts'

const headers = { 'transfer-encoding': 'chunked' }
/** Returns a request whose body is the given object, so that a test can simulate the streams of other runtimes. */
const requestOf = (body: object) =>
  ({ headers: new Headers(headers), bodyUsed: false, body }) as unknown as Request

test('default: discardBody reads a long body to its end', async () => {
  const parts = [new Uint8Array(100_000), new Uint8Array(1)]
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const part = parts.shift()
      if (part) controller.enqueue(part)
      else controller.close()
    },
  })
  await discardBody(requestOf(body))
  expect([parts.length, body.locked]).toEqual([0, false])
})

test('behavior: discardBody returns immediately if the stream is locked', async () => {
  const body = new ReadableStream()
  body.getReader()
  await expect(discardBody(requestOf(body))).resolves.toBeUndefined()
})

test('behavior: discardBody returns even if the stream can’t be unlocked while a read is pending, as in workerd', async () => {
  vi.useFakeTimers()
  const reader = {
    read: () => new Promise(() => {}),
    releaseLock() {
      throw new TypeError('Cannot call releaseLock() on a reader with outstanding read promises.')
    },
  }
  const discarded = discardBody(requestOf({ getReader: () => reader }))
  await vi.advanceTimersByTimeAsync(2_000)
  vi.useRealTimers()
  await expect(discarded).resolves.toBeUndefined()
})

import { expect, test, vi } from 'vitest'
import { discardBody } from './unreadBody.ts'

const headers = { 'transfer-encoding': 'chunked' }
/** A request of a runtime whose streams differ from Node's. */
const requestOf = (body: object) =>
  ({ headers: new Headers(headers), bodyUsed: false, body }) as unknown as Request

test('default: reads a long body to its end', async () => {
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

test('behavior: ends for a stream that is locked', async () => {
  const body = new ReadableStream()
  body.getReader()
  await expect(discardBody(requestOf(body))).resolves.toBeUndefined()
})

test('behavior: ends for a stream that keeps its lock while a read is pending, as those of workerd', async () => {
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

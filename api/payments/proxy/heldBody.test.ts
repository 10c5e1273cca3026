import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { buffer } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { createBodyHolder } from './heldBody.ts'

const limits = { maxBytes: 1_000, inMemoryBytes: 100, totalBytes: 2_000, clientBytes: 1_200 }

function bodyOf(length: number, parts = 10): ReadableStream<Uint8Array> {
  let left = length
  return new ReadableStream({
    pull(controller) {
      const size = Math.min(left, Math.ceil(length / parts))
      if (size === 0) return controller.close()
      controller.enqueue(new Uint8Array(size).fill(left % 256))
      left -= size
    },
  })
}

const temporary = async () => (await readdir(tmpdir())).filter((name) => name.startsWith('tollkeeper-body-'))

test.each([
  ['in memory', 100],
  ['on disk', 1_000],
])('default: a body %s is read as it came, and frees its space', async (_, length) => {
  const holder = createBodyHolder(limits)
  const held = await holder.take(bodyOf(length), 'a')
  const expected = await buffer(bodyOf(length))
  expect([held.length, held.digest]).toEqual([length, createHash('sha256').update(expected).digest('hex')])
  for (let time = 0; time < 2; time++) expect(await buffer(held.read())).toEqual(expected)
  expect(holder.heldBytes()).toBe(length)
  await held.release()
  expect([holder.heldBytes(), await temporary()]).toEqual([0, []])
})

test('behavior: space is freed once a body that is being read was read', async () => {
  const holder = createBodyHolder(limits)
  const held = await holder.take(bodyOf(1_000), 'a')
  const reading = held.read()
  const released = held.release()
  expect(holder.heldBytes()).toBe(1_000)
  reading.destroy()
  await once(reading, 'close')
  await released
  expect(holder.heldBytes()).toBe(0)
})

test('error: a body that is too large, or breaks off, takes no space', async () => {
  const holder = createBodyHolder(limits)
  await expect(holder.take(bodyOf(1_001), 'a')).rejects.toMatchObject({ code: 'payload_too_large' })
  const breaking = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new Uint8Array(500)),
    pull: (controller) => controller.error(new Error('gone')),
  })
  await expect(holder.take(breaking, 'a')).rejects.toMatchObject({ code: 'request_timeout' })
  expect([holder.heldBytes(), await temporary()]).toEqual([0, []])
})

test('error: neither one client nor all together take more than their space', async () => {
  const holder = createBodyHolder(limits)
  const first = await holder.take(bodyOf(1_000), 'a')
  await expect(holder.take(bodyOf(300), 'a')).rejects.toMatchObject({
    code: 'overloaded',
    details: { retryAfter: 5 },
  })
  const second = await holder.take(bodyOf(900), 'b')
  await expect(holder.take(bodyOf(200), 'c')).rejects.toMatchObject({ code: 'overloaded' })
  expect(holder.heldBytes()).toBe(1_900)
  for (const held of [first, second]) await held.release()
  expect((await holder.take(bodyOf(1_000), 'c')).length).toBe(1_000)
})

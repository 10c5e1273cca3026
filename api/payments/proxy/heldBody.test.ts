import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type FileHandle, readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { buffer } from 'node:stream/consumers'
import { describe, expect, test } from 'vitest'
import { failCloses, spyOnWrites } from '../../../test/support/fileWrites.ts'
import { type BodyOwners, createBodyHolder } from './heldBody.ts'

const limits = {
  maxBytes: 1_000,
  inMemoryBytes: 100,
  totalBytes: 2_000,
  ownerBytes: 1_200,
  onCloseFailed: () => expect.unreachable(),
}

let providers = 0
/** Returns the owners of a body: a client with these names, and a new provider that no other client uses. */
function from(...clients: string[]): BodyOwners {
  return { clients, provider: `provider ${++providers}` }
}

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
])('default: a body that is held %s is read unchanged, and then frees its space', async (_, length) => {
  const holder = createBodyHolder(limits)
  const held = await holder.take(bodyOf(length), from('a'))
  const expected = await buffer(bodyOf(length))
  expect([held.length, held.digest]).toEqual([length, createHash('sha256').update(expected).digest('hex')])
  for (let time = 0; time < 2; time++) expect(await buffer(held.read())).toEqual(expected)
  expect(holder.heldBytes()).toBe(length)
  await held.release()
  expect([holder.heldBytes(), await temporary()]).toEqual([0, []])
})

describe('a body of a thousand parts', () => {
  test('behavior: is held in one buffer', async () => {
    const held = await createBodyHolder({ ...limits, inMemoryBytes: 1_000 }).take(
      bodyOf(1_000, 1_000),
      from('a'),
    )
    const parts: Uint8Array[] = []
    for await (const part of held.read()) parts.push(part)
    expect(parts.map(({ buffer }) => buffer.byteLength)).toEqual([1_000])
    expect(Buffer.concat(parts)).toEqual(await buffer(bodyOf(1_000, 1_000)))
    await held.release()
  })

  test('behavior: is written to disk with one write for each full buffer', async () => {
    const { spy } = await spyOnWrites()
    const held = await createBodyHolder(limits).take(bodyOf(1_000, 1_000), from('a'))
    expect(spy).toHaveBeenCalledTimes(10)
    expect(await buffer(held.read())).toEqual(await buffer(bodyOf(1_000, 1_000)))
    await held.release()
  })
})

describe('if the disk fails', () => {
  test('behavior: continues a partial write', async () => {
    const { spy, write } = await spyOnWrites()
    spy.mockImplementationOnce(function (
      this: FileHandle,
      bytes,
      offset = 0,
      length = bytes.length,
      ...place
    ) {
      return write.call(this, bytes, offset, length / 2, ...place)
    })
    const held = await createBodyHolder(limits).take(bodyOf(1_000), from('a'))
    expect(await buffer(held.read())).toEqual(await buffer(bodyOf(1_000)))
    await held.release()
  })

  test.each(['fails', 'takes nothing'])(
    'error: refuses a body and frees its space if a write %s',
    async (how) => {
      const { spy } = await spyOnWrites()
      if (how === 'fails') spy.mockRejectedValue(new Error('ENOSPC'))
      else spy.mockResolvedValue({ bytesWritten: 0, buffer: '' })
      const holder = createBodyHolder(limits)
      await expect(holder.take(bodyOf(1_000), from('a'))).rejects.toMatchObject({
        code: 'overloaded',
        details: { retryAfter: 5, dependency: 'disk' },
      })
      expect([holder.heldBytes(), await temporary()]).toEqual([0, []])
    },
  )

  test('error: reports a file that can’t be closed, and frees its space', async () => {
    const failed: unknown[] = []
    const error = new Error('EIO')
    await failCloses(error)
    const holder = createBodyHolder({ ...limits, onCloseFailed: (error) => failed.push(error) })
    const held = await holder.take(bodyOf(1_000), from('a'))
    await held.release()
    // The holder also reports a close failure if it refuses the body for another reason.
    await expect(holder.take(bodyOf(1_001), from('a'))).rejects.toMatchObject({ code: 'payload_too_large' })
    expect([failed, holder.heldBytes()]).toEqual([[error, error], 0])
  })
})

test('behavior: frees the space of a body only after it has been read', async () => {
  const holder = createBodyHolder(limits)
  const held = await holder.take(bodyOf(1_000), from('a'))
  const reading = held.read()
  const released = held.release()
  expect(holder.heldBytes()).toBe(1_000)
  reading.destroy()
  await once(reading, 'close')
  await released
  expect(holder.heldBytes()).toBe(0)
})

test('error: frees the space of a body that is too large or breaks off', async () => {
  const holder = createBodyHolder(limits)
  await expect(holder.take(bodyOf(1_001), from('a'))).rejects.toMatchObject({ code: 'payload_too_large' })
  const breaking = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new Uint8Array(500)),
    pull: (controller) => controller.error(new Error('gone')),
  })
  await expect(holder.take(breaking, from('a'))).rejects.toMatchObject({ code: 'request_timeout' })
  expect([holder.heldBytes(), await temporary()]).toEqual([0, []])
})

test('error: limits the space of each client, and recognizes a client by any of its names', async () => {
  const holder = createBodyHolder(limits)
  const first = await holder.take(bodyOf(1_000), from('a', 'challenge'))
  for (const owners of [from('a'), from('b', 'challenge')])
    await expect(holder.take(bodyOf(300), owners)).rejects.toMatchObject({
      code: 'overloaded',
      details: { retryAfter: 5 },
    })
  expect(holder.heldBytes()).toBe(1_000)
  const other = await holder.take(bodyOf(300), from('b'))
  for (const held of [first, other]) await held.release()
  expect((await holder.take(bodyOf(1_000), from('a'))).length).toBe(1_000)
})

test('error: never cancels a complete body, because it may be paid, and refuses an arriving body instead', async () => {
  const holder = createBodyHolder(limits)
  const first = await holder.take(bodyOf(1_000), from('a'))
  const second = await holder.take(bodyOf(900), from('b'))
  await expect(holder.take(bodyOf(200), from('c'))).rejects.toMatchObject({ code: 'overloaded' })
  expect(holder.heldBytes()).toBe(1_900)
  for (const held of [first, second]) await held.release()
  expect((await holder.take(bodyOf(1_000), from('c'))).length).toBe(1_000)
})

test('error: a provider whose server reads nothing fills at most its share, with any number of clients', async () => {
  const holder = createBodyHolder(limits)
  const to = (provider: string, client: string) => ({ clients: [client], provider })
  const unread = await holder.take(bodyOf(1_000), to('unread', 'a'))
  await expect(holder.take(bodyOf(300), to('unread', 'b'))).rejects.toMatchObject({ code: 'overloaded' })
  expect(holder.heldBytes()).toBe(1_000)
  const other = await holder.take(bodyOf(1_000), to('other', 'b'))
  for (const held of [unread, other]) await held.release()
  expect((await holder.take(bodyOf(1_000), to('unread', 'b'))).length).toBe(1_000)
})

/** Returns a body that the test sends part by part. */
function slowBody() {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>()
  const writer = writable.getWriter()
  // A write resolves once it is read, which never happens for a canceled upload.
  const send = (length: number) => void writer.write(new Uint8Array(length)).catch(() => {})
  return { stream: readable, send, end: () => void writer.close() }
}

describe('while slow strangers hold all the space', () => {
  /** Starts four uploads with these lengths so far, each from a different client unless `owner` names one. */
  async function holdAll(lengths: readonly number[], owner?: string) {
    const holder = createBodyHolder(limits)
    const ends: string[] = []
    for (const [index, length] of lengths.entries()) {
      const body = slowBody()
      void holder.take(body.stream, from(owner ?? `stranger ${index}`)).then(
        () => ends.push(`${index} arrived`),
        ({ code }) => ends.push(`${index} ${code}`),
      )
      body.send(length)
    }
    const total = lengths.reduce((sum, length) => sum + length, 0)
    await expect.poll(() => holder.heldBytes()).toBe(total)
    return { holder, ends }
  }

  test('behavior: cancels the largest upload if a buyer that uses less space needs it', async () => {
    const { holder, ends } = await holdAll([500, 450, 550, 500])
    const held = await holder.take(bodyOf(400), from('buyer'))
    expect(held.length).toBe(400)
    expect(await buffer(held.read())).toHaveLength(400)
    await expect.poll(() => ends).toEqual(['2 overloaded'])
    expect(holder.heldBytes()).toBe(500 + 450 + 500 + 400)
    await held.release()
  })

  test('behavior: cancels an upload of the client that uses the most space in total, even if another client has a longer upload', async () => {
    const { holder, ends } = await holdAll([400, 390, 380], 'stranger')
    const buyer = slowBody()
    const taking = holder.take(buyer.stream, from('buyer'))
    buyer.send(600)
    await expect.poll(() => holder.heldBytes()).toBe(1_770)
    buyer.send(300)
    buyer.end()
    expect((await taking).length).toBe(900)
    await expect.poll(() => ends).toEqual(['0 overloaded'])
  })

  test('behavior: if a provider’s share is full, cancels the upload of that provider’s largest client', async () => {
    const holder = createBodyHolder(limits)
    const provider = 'busy'
    const [greatest, elsewhere] = [slowBody(), slowBody()]
    const slow = holder.take(greatest.stream, { clients: ['slow'], provider })
    slow.catch(() => {})
    const unaffected = holder.take(elsewhere.stream, from('elsewhere'))
    greatest.send(900)
    elsewhere.send(600)
    await expect.poll(() => holder.heldBytes()).toBe(1_500)
    const held = await holder.take(bodyOf(400), { clients: ['buyer'], provider })
    expect(held.length).toBe(400)
    await expect(slow).rejects.toMatchObject({ code: 'overloaded' })
    elsewhere.end()
    expect((await unaffected).length).toBe(600)
  })

  test('error: cancels no upload for the client that already uses the most space', async () => {
    const { holder, ends } = await holdAll([500, 500, 500])
    const greedy = slowBody()
    const taking = holder.take(greedy.stream, from('greedy'))
    greedy.send(500)
    await expect.poll(() => holder.heldBytes()).toBe(2_000)
    greedy.send(1)
    await expect(taking).rejects.toMatchObject({ code: 'overloaded' })
    expect([holder.heldBytes(), ends]).toEqual([1_500, []])
  })
})

import postgres from 'postgres'
import { expect, test } from 'vitest'
import { allOrEach, forEachRow, PartsFailed, takeParts } from './stepBack.ts'

/** Returns an error of the server with this SQLSTATE. */
function sqlError(code: string): Error {
  return new postgres.PostgresError({ message: 'refused for a test', code } as never)
}

const rows = (count: number) => Array.from({ length: count }, (_, index) => index)
const never = (error: unknown) => {
  throw error
}

test.each(['25P04', '57014', '55P03'])(
  'behavior: processes the other rows if one row always fails with the PostgreSQL error %s',
  async (code) => {
    const done: number[] = []
    let asked = 0
    const bad: number[] = []
    const failed = await forEachRow(
      rows(3),
      async (row) => {
        if (row === 0) throw sqlError(code)
        done.push(row)
      },
      (_error, row) => bad.push(row),
      {
        ask: async () => {
          asked += 1
        },
      },
    )
    expect({ failed, bad, done, asked }).toEqual({ failed: [0], bad: [0], done: [1, 2], asked: 1 })
  },
)

test('error: throws, and reports no row, if the database no longer responds', async () => {
  const work = async () => {
    throw sqlError('57014')
  }
  const down = new Error('down')
  await expect(forEachRow(rows(2), work, never, { ask: () => Promise.reject(down) })).rejects.toBe(down)
})

test('error: ends the step after five consecutive slow rows, instead of querying a slow database for each row', async () => {
  let tried = 0
  const bad: number[] = []
  const work = async () => {
    tried += 1
    throw sqlError('57014')
  }
  await expect(forEachRow(rows(100), work, (_error, row) => bad.push(row))).rejects.toThrow('refused')
  expect([tried, bad]).toEqual([5, [0, 1, 2, 3, 4]])
})

test('behavior: halves a slow chunk until it finds the row at fault, and enlarges later chunks again', async () => {
  const sizes: number[] = []
  const done: number[] = []
  const bad: number[] = []
  await allOrEach(
    rows(24),
    async (some) => {
      sizes.push(some.length)
      if (some.includes(5)) throw sqlError('25P04')
      done.push(...some)
    },
    (_error, row) => bad.push(row),
    { chunk: 8 },
  )
  expect(bad).toEqual([5])
  expect(done).toEqual(rows(24).filter((row) => row !== 5))
  expect(sizes).toEqual([8, 4, 4, 2, 1, 1, 1, 1, 2, 4, 8, 2])
})

test('behavior: processes the chunk with an invalid row one row at a time, and other chunks as a whole', async () => {
  const sizes: number[] = []
  const bad: number[] = []
  await allOrEach(
    rows(9),
    async (some) => {
      sizes.push(some.length)
      if (some.includes(1)) throw sqlError('23514')
    },
    (_error, row) => bad.push(row),
    { chunk: 3 },
  )
  expect([bad, sizes]).toEqual([[1], [3, 1, 1, 1, 3, 3]])
})

test('error: throws, and reports no row, if the connection is lost', async () => {
  const lost = sqlError('08006')
  await expect(allOrEach(rows(2), () => Promise.reject(lost), never)).rejects.toBe(lost)
})

test('behavior: halves a chunk that loses its connection while the database responds, and throws without reporting a row', async () => {
  const lost = sqlError('08006')
  const sizes: number[] = []
  const work = async (some: readonly number[]) => {
    sizes.push(some.length)
    if (some.includes(3)) throw lost
  }
  await expect(allOrEach(rows(4), work, never, { ask: async () => {} })).rejects.toBe(lost)
  expect(sizes).toEqual([4, 2, 2, 1, 1])
  const down = new Error('down')
  await expect(allOrEach(rows(4), work, never, { ask: () => Promise.reject(down) })).rejects.toBe(down)
})

test('error: takeParts runs all parts, and then throws one error that names each failed part, even a nested part', async () => {
  const taken: string[] = []
  const fail = (message: string) => () => Promise.reject(new Error(message))
  const error = await takeParts({
    one: fail('first'),
    two: async () => taken.push('two'),
    three: () => takeParts({ inner: fail('second'), other: async () => taken.push('other') }),
  }).catch((cause: unknown) => cause)
  expect(error).toBeInstanceOf(PartsFailed)
  expect((error as Error).message).toBe('one: Error: first; three, inner: Error: second')
  expect(taken).toEqual(['two', 'other'])
})

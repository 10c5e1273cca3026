import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openJsonLinesFile } from './jsonLinesFile.ts'
import { openReceiptFile } from './receiptFile.ts'

let folder: string
let path: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'receipts-'))
  path = join(folder, 'receipts.jsonl')
})
afterEach(() => rm(folder, { recursive: true, force: true }))

const lines = async () => (await readFile(path, 'utf8')).split('\n')

test('default: writes one line per receipt, even for concurrent calls, and resolves when the line is on disk', async () => {
  const file = await openReceiptFile(path)
  const url = 'https://weather.example/'
  await file.keep({ receipt: 'a.b.c', paymentId: 'pay_1', url })
  expect(await lines()).toEqual([JSON.stringify({ receipt: 'a.b.c', paymentId: 'pay_1', url }), ''])
  await Promise.all(
    Array.from({ length: 200 }, (_, i) => file.keep({ receipt: `a.b.${i}`, paymentId: undefined, url })),
  )
  const kept = (await lines()).slice(1, -1).map((line) => JSON.parse(line).receipt)
  expect(kept).toEqual(Array.from({ length: 200 }, (_, i) => `a.b.${i}`))
  await file.close()
})

const long = `{${'x'.repeat(200_000)}`

test.each([
  ['a torn line', '{one\n{two\n{thr', '{one\n{two\n', '{two'],
  ['only a torn line', '{', '', undefined],
  ['whole lines', '{one\n', '{one\n', '{one'],
  ['a torn line longer than a chunk', `{one\n${long}`, '{one\n', '{one'],
  ['a last line longer than a chunk', `${long}\n`, `${long}\n`, long],
  ['nothing', '', '', undefined],
])('behavior: can be opened after a crash left %s', async (_, left, kept, lastLine) => {
  await writeFile(path, left)
  const file = await openJsonLinesFile(path, '{')
  expect(file.lastLine).toBe(lastLine)
  await file.append('{new', '{lines')
  await file.close()
  expect(await readFile(path, 'utf8')).toBe(`${kept}{new\n{lines\n`)
})

test.each(['{"keys":[]}', '{"keys":[]}\n', 'a\nb', '{"receipt":"a"}\nb'])(
  'error: leaves a file with other contents unchanged: %j',
  async (left) => {
    await writeFile(path, left)
    await expect(openReceiptFile(path)).rejects.toThrow(/has other contents/)
    expect(await readFile(path, 'utf8')).toBe(left)
  },
)

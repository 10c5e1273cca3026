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

test('default: one line a receipt, on the disk when it says so, many at once', async () => {
  const file = await openReceiptFile(path)
  const url = 'https://weather.example/'
  await file.keep({ receipt: 'a.b.c', paymentId: 'pay_1', url })
  expect(await lines()).toEqual([JSON.stringify({ paymentId: 'pay_1', url, receipt: 'a.b.c' }), ''])
  await Promise.all(
    Array.from({ length: 200 }, (_, i) => file.keep({ receipt: `a.b.${i}`, paymentId: undefined, url })),
  )
  const kept = (await lines()).slice(1, -1).map((line) => JSON.parse(line).receipt)
  expect(kept).toEqual(Array.from({ length: 200 }, (_, i) => `a.b.${i}`))
  await file.close()
})

test.each([
  ['a torn line', 'one\ntwo\nthr', 'one\ntwo\n', 'two'],
  ['nothing but a torn line', 'on', '', undefined],
  ['whole lines', 'one\n', 'one\n', 'one'],
  ['a torn line longer than a chunk', `one\n${'x'.repeat(200_000)}`, 'one\n', 'one'],
  [
    'a last line longer than a chunk',
    `${'x'.repeat(70_000)}\n`,
    `${'x'.repeat(70_000)}\n`,
    'x'.repeat(70_000),
  ],
  ['nothing', '', '', undefined],
])('behavior: opened after a crash left %s', async (_, left, kept, lastLine) => {
  await writeFile(path, left)
  const file = await openJsonLinesFile(path)
  expect(file.lastLine).toBe(lastLine)
  await file.append('new', 'lines')
  await file.close()
  expect(await readFile(path, 'utf8')).toBe(`${kept}new\nlines\n`)
})

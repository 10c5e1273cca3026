import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import phrasesToAvoid from '../../tools/plainEnglish.json' with { type: 'json' }
import { countPhrases, findPhrases, proseOf, rateOf } from '../../tools/plainEnglish.ts'

// Hits for each 1,000 words. Carefully written code bases of this field have 0.0 to 0.8.
const limit = { overall: 1.5, folder: 3 }

const root = join(import.meta.dirname, '../..')

test('comments, docs, titles, and texts for users are in plain English in each folder', () => {
  const { found, folders, total } = countPhrases(root)
  const tooMany = [...folders].filter(([, count]) => rateOf(count) > limit.folder).map(([folder]) => folder)
  const shown = found
    .filter(({ file }) => tooMany.some((folder) => file.startsWith(folder)))
    .map(({ file, line, phrase, text }) => `${file}:${line}: ${phrase}: ${text}`)
  // The whole list: node tools/plainEnglish.ts --list
  expect([tooMany, shown.slice(0, 20)]).toEqual([[], []])
  expect(rateOf(total)).toBeLessThanOrEqual(limit.overall)
  expect(total.words).toBeGreaterThan(200_000)
})

test.each(phrasesToAvoid.map(({ example, name }) => [example, name] as const))(
  'finds the phrase in "%s"',
  (text, phrase) => {
    expect(findPhrases(text).map((one) => one.phrase)).toContain(phrase)
  },
)

test.each([
  'The keeper retries a failed payment after one minute.',
  'What does it cost? Who pays the gas?',
  'The index is told to stop by its parent.',
  'Maximum number of requests per provider.',
])('finds no phrase in "%s"', (text) => {
  expect(findPhrases(text)).toEqual([])
})

describe('proseOf', () => {
  test('returns the comments and texts of a program, without code and SQL', () => {
    const source = [
      '// A comment that has',
      '// two lines',
      "const a = 'one two'",
      "throw new Error('the text of an error')",
      'await sql`select a from b`',
      '/** Returns `nobody`. */',
    ].join('\n')
    expect(proseOf('a.ts', source).map(({ line, text }) => [line, text.trim()])).toEqual([
      [1, 'A comment that has\ntwo lines'],
      [4, 'the text of an error'],
      [6, 'Returns x.'],
    ])
  })

  test('returns the comments of SQL, with adjacent lines joined', () => {
    expect(proseOf('a.sql', '-- one\n-- two\nselect 1; -- three')).toEqual([
      { line: 1, text: 'one\ntwo\nthree' },
    ])
  })

  test('returns Markdown without its code', () => {
    expect(proseOf('a.md', 'Run `nobody`:\n\n```sh\nnobody\n```\nDone.')[0]?.text.replaceAll('\n', ' ')).toBe(
      'Run x:     Done.',
    )
  })
})

import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { root } from '../support/processes.ts'

const page = 'docs/glossary.md'

/** Words to avoid because the glossary has another name, with the name to use. */
const avoid: Record<string, string> = {
  quarantine: 'isolated payment, index gap or blocked payer',
  quarantines: 'isolated payment, index gap or blocked payer',
  quarantined: 'isolated, or blocked for a payer',
  company: 'batch',
  purse: 'budget or wallet',
  purses: 'budgets or wallets',
  hearer: 'caller or recipient',
  hearers: 'callers or recipients',
  telling: 'notification',
  tellings: 'notifications',
  'is loose': 'is unbatched',
  'are loose': 'are unbatched',
  'loose payment': 'unbatched payment',
  'loose payments': 'unbatched payments',
  ground: 'environment',
  'give up': 'fail',
  'gives up': 'fails',
  'gave up': 'failed',
  'given up': 'failed',
  conclude: 'finalize',
  concludes: 'finalizes',
  concluded: 'finalized',
  condemned: 'blocked',
  spoiled: 'unsettleable',
  disowned: 'repudiated',
  misfit: 'mismatch',
  misfits: 'mismatches',
  deed: 'capability or action',
  deeds: 'capabilities or actions',
  heed: 'listen to',
  heeds: 'listens to',
}

/** Returns the cells of each row of the page's table, except the head. */
function rowsOf(text: string): string[][] {
  const rows = text.split('\n').filter((line) => line.startsWith('|'))
  return rows.slice(2).map((row) =>
    row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
}

/** Files that list words and phrases to avoid. */
const listing = new Set([
  'test/house/glossary.test.ts',
  'test/house/plainEnglish.test.ts',
  'tools/plainEnglish.ts',
])

const pattern = new RegExp(`\\b(${Object.keys(avoid).join('|')})\\b`, 'g')

/**
 * Returns each avoided word in a text with its line and the preferred term. Finds it inside of identifiers as
 * well.
 */
function findAvoided(text: string): string[] {
  return text.split('\n').flatMap((line, index) => {
    // `giveUp`, `GIVE_UP` and `give-up` are two words.
    const words = line
      .replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2')
      .replaceAll(/[_-]/g, ' ')
      .toLowerCase()
    return [...words.matchAll(pattern)].map(([word]) => `${index + 1}: ${word}, use: ${avoid[word]}`)
  })
}

test('the glossary has at most 40 terms in order, each with its meaning and its standard (or "ours")', () => {
  const rows = rowsOf(readFileSync(join(root, page), 'utf8'))
  expect(rows.length).toBeGreaterThan(30)
  expect(rows.length).toBeLessThanOrEqual(40)
  const names = rows.map(([term]) => term)
  expect(names).toEqual([...new Set(names)].toSorted())
  expect(rows.filter((cells) => cells.length !== 3 || cells.includes(''))).toEqual([])
})

test('code, comments and documents contain no word that the glossary says to avoid', () => {
  const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  })
    .split('\n')
    .filter((file) => /\.(ts|tsx|js|mjs|sol|sql|md|ya?ml)$/.test(file) && existsSync(join(root, file)))
    .filter((file) => !/(^|\/)generated\//.test(file) && !listing.has(file))
  expect(files.length).toBeGreaterThan(500)
  const faults = files.flatMap((file) => [
    ...findAvoided(file).map((found) => `${file} (name): ${found}`),
    ...findAvoided(readFileSync(join(root, file), 'utf8')).map((found) => `${file}:${found}`),
  ])
  expect(faults).toEqual([])
})

test.each([
  ['the payment is quarantined', 'quarantined'],
  ['const isLoose = true', 'is loose'],
  ['giveUp()', 'give up'],
  ["error('payer_quarantined')", 'quarantined'],
])('finds a word to avoid in: %s', (text, word) => {
  expect(findAvoided(text)).toEqual([expect.stringContaining(`1: ${word}, use: `)])
})

test('ignores a longer word that contains a word to avoid', () => {
  expect(findAvoided('in the background, indeed: accompany')).toEqual([])
})

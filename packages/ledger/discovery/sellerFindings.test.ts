import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { adviceOn, finding, sellerFindings } from './sellerFindings.ts'

test('docs/discovery.md lists every code with its severity', async () => {
  const text = await readFile(new URL('../../../docs/discovery.md', import.meta.url), 'utf8')
  const [, table = ''] = /<!-- findings: .*? -->\n(.*?)<!-- \/findings -->/s.exec(text) ?? []
  const listed = [...table.matchAll(/^\| (error|warning|ok) +\|.*?\| (.*?) +\|$/gm)].flatMap(
    ([, severity, codes = '']) => [...codes.matchAll(/`(\w+)`/g)].map(([, code]) => [code, severity]),
  )
  const found = Object.entries(sellerFindings).map(([code, { severity }]) => [code, severity])
  expect(Object.fromEntries(listed)).toEqual(Object.fromEntries(found))
  expect(listed).toHaveLength(found.length)
})

test('every error and warning has advice, in sentences', () => {
  for (const { severity, means, advice } of Object.values(sellerFindings)) {
    expect(means).toMatch(/^[A-Z].*\.$/)
    if (severity === 'ok') expect(advice).toBeNull()
    else expect(advice).toMatch(/^[A-Z]/)
  }
})

test('a finding has its severity and advice from the table, and may have a more exact message', () => {
  expect(finding('serves_unpaid', 'It answered 200.')).toEqual({
    code: 'serves_unpaid',
    severity: 'error',
    message: 'It answered 200.',
    advice: 'Put the middleware in front of this route, for this method.',
  })
})

test.each([null, 'gone', 'toString'])('returns no advice for the unknown code %s', (code) =>
  expect(adviceOn(code)).toBeNull(),
)

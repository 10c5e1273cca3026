import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { errorCodes } from '../src/protocol/errors.ts'
import { compile, readExports, readSnippets, runSnippets } from './snippets.ts'

const root = join(import.meta.dirname, '..', '..')
const files = [
  ...['README.md', 'sdk/README.md'],
  ...[
    'before-accept',
    'buy',
    'discovery',
    'passes',
    'protocol',
    'provider-client',
    'sell',
    'sell-a-tool',
    'tabs',
    'without-code',
  ].map((name) => `docs/${name}.md`),
]
const snippets = (await Promise.all(files.map(readSnippets))).flat()
const exports = readExports()
// Several entry points may export the same item.
const examples = [
  ...new Map(
    exports.flatMap((exported) => exported.examples.map((example) => [example.source, example])),
  ).values(),
]

describe('exports', () => {
  test('behavior: are documented, and each function, class and constant has an example', () => {
    const values = exports.filter(({ isValue }) => isValue)
    expect(values.length).toBeGreaterThan(50)
    expect(exports.filter(({ summary }) => summary === '').map(({ name }) => name)).toEqual([])
    expect(values.filter((value) => value.examples.length === 0).map(({ name }) => name)).toEqual([])
  })

  test('behavior: each example of an export imports it', () => {
    const others = exports.filter((exported) => {
      const [, symbol] = exported.name.split(' ')
      const pattern = new RegExp(`import (?:type )?\\{[^}]*\\b${symbol}\\b[^}]*\\} from '@tollkeeper/sdk`)
      return exported.examples.some(({ source }) => !pattern.test(source))
    })
    expect(others.map(({ name }) => name)).toEqual([])
  })
})

describe('snippets and examples', () => {
  test('behavior: compile without errors', () => compile([...snippets, ...examples]))

  test('behavior: print their documented output, if they are marked as runnable', async () => {
    const run = [...snippets, ...examples].filter(({ isRun }) => isRun)
    expect(run.length).toBeGreaterThan(30)
    const printed = await runSnippets(run)
    const named = (texts: string[]) => Object.fromEntries(run.map(({ name }, index) => [name, texts[index]]))
    expect(named(printed)).toEqual(named(run.map(({ expected }) => expected)))
  })
})

test('behavior: docs/protocol.md lists every error code', async () => {
  const file = join(root, 'docs/protocol.md')
  const text = await readFile(file, 'utf8')
  const rows = Object.entries(errorCodes).map(([code, entry]) => {
    const isRetryable = 'retryable' in entry
    return `| \`${code}\` | ${entry.status}${isRetryable ? ' \\*' : ''} | ${entry.title} |`
  })
  const table = ['', '| code | status | meaning |', '| --- | --- | --- |', ...rows, ''].join('\n')
  const updated = text.replace(
    /(<!-- errors.*-->\n)[\s\S]*?(<!-- \/errors -->)/,
    (_, start, end) => `${start}${table}\n${end}`,
  )
  if (process.env.UPDATE_DOCS) await writeFile(file, updated)
  else expect(unpad(text), 'run UPDATE_DOCS=1 npx vitest run sdk/test/docs').toBe(unpad(updated))
})

/** Removes the padding that the formatter adds to table columns. */
function unpad(markdown: string): string {
  return markdown.replaceAll(/ {2,}/g, ' ').replaceAll(/-{3,}/g, '---')
}

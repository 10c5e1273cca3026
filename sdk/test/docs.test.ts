import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { errorCodes } from '../src/protocol/errors.ts'

const run = promisify(execFile)
const root = join(import.meta.dirname, '..', '..')
const snippetPattern = /^```ts(?: (\w+))?\n([\s\S]*?)^```$/gm

type Snippet = { name: string; source: string; isRun: boolean; expected: string }

async function snippetsOf(file: string): Promise<Snippet[]> {
  const text = await readFile(join(root, file), 'utf8')
  return [...text.matchAll(snippetPattern)].map(([, word, source = ''], index) => ({
    name: `${file} ${index + 1}`,
    source,
    isRun: word === 'run',
    // The comments at the end are what it prints.
    expected: /((?:^\/\/ .*\n)+)$/m.exec(source)?.[1]?.replaceAll(/^\/\/ /gm, '') ?? '',
  }))
}

const files = ['README.md', 'docs/protocol.md', 'sdk/README.md']
const snippets = (await Promise.all(files.map(snippetsOf))).flat()

describe('snippets', () => {
  test('behavior: all of them compile', async () => {
    const folder = await mkdtemp(join(import.meta.dirname, '.snippets-'))
    try {
      await Promise.all(
        snippets.map(({ source }, index) => writeFile(join(folder, `${index}.ts`), `${source}\nexport {}\n`)),
      )
      await writeFile(
        join(folder, 'tsconfig.json'),
        JSON.stringify({ extends: '../../../tsconfig.json', include: ['*.ts'], exclude: [] }),
      )
      await run(join(root, 'node_modules/.bin/tsc'), ['-p', folder]).catch((error: { stdout?: string }) => {
        throw new Error(error.stdout)
      })
    } finally {
      await rm(folder, { recursive: true })
    }
  })

  test.each(snippets.filter(({ isRun }) => isRun))(
    'default: $name prints what it says',
    async ({ source, expected }) => {
      const args = ['--conditions=@tollkeeper/source', '--input-type=module-typescript', '--eval', source]
      const { stdout } = await run(process.execPath, args, { cwd: root })
      expect(stdout).toBe(expected)
    },
  )
})

test('behavior: docs/protocol.md lists every error code', async () => {
  const file = join(root, 'docs/protocol.md')
  const text = await readFile(file, 'utf8')
  const rows = Object.entries(errorCodes).map(([code, entry]) => {
    const isRetryable = 'retryable' in entry
    return `| \`${code}\` | ${entry.status} | ${entry.title}${isRetryable ? ' (try again later)' : ''} |`
  })
  const table = ['', '| code | status | meaning |', '| --- | --- | --- |', ...rows, ''].join('\n')
  const updated = text.replace(
    /(<!-- errors.*-->\n)[\s\S]*?(<!-- \/errors -->)/,
    (_, start, end) => `${start}${table}\n${end}`,
  )
  if (process.env.UPDATE_DOCS) await writeFile(file, updated)
  else expect(unpad(text), 'run UPDATE_DOCS=1 npx vitest run sdk/test/docs').toBe(unpad(updated))
})

/** The formatter pads the columns of a table. */
function unpad(markdown: string): string {
  return markdown.replaceAll(/ {2,}/g, ' ').replaceAll(/-{3,}/g, '---')
}

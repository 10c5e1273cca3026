import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'
import { transform } from 'esbuild'
import { API, SymbolFlags } from 'typescript/unstable/sync'
import packageJson from '../package.json' with { type: 'json' }

const run = promisify(execFile)
const root = join(import.meta.dirname, '..', '..')
const fencePattern = /^```ts(?: (\w+))?\n([\s\S]*?)^```$/gm

/** Code in a document. */
export type Snippet = {
  name: string
  source: string
  isRun: boolean
  /** The expected output, from the comments at the end of the code. */
  expected: string
}

/** An export of an entry point of the package. */
export type Export = {
  name: string
  /** Whether the export is a function, class or constant, which exists at runtime. A type doesn't. */
  isValue: boolean
  /** The first paragraph of the export's TSDoc. */
  summary: string
  examples: Snippet[]
}

/** Returns the ```ts blocks of a Markdown file. Those marked ```ts run are executed. */
export async function readSnippets(file: string): Promise<Snippet[]> {
  const text = await readFile(join(root, file), 'utf8')
  return [...text.matchAll(fencePattern)].map(([, word, source = ''], index) => ({
    name: `${file} ${index + 1}`,
    source,
    isRun: word === 'run',
    expected: printedBy(source),
  }))
}

/** Returns everything that the package's entry points export, as the compiler resolves it. */
export function readExports(): Export[] {
  const api = new API({ cwd: root })
  try {
    const [project] = api.updateSnapshot({ openProjects: ['sdk/tsconfig.build.json'] }).getProjects()
    if (!project) throw new Error('sdk/tsconfig.build.json is not a project')
    const { program, checker } = project
    // `./*` is only for the other packages of this repository, and isn't published.
    const { './*': _, ...published } = packageJson.exports
    return Object.entries(published).flatMap(([path, { '@tollkeeper/source': source }]) => {
      const file = program.getSourceFile(join(root, 'sdk', source))
      const module = file && checker.getSymbolAtLocation(file)
      if (!module) throw new Error(`${source} is not a module`)
      return checker.getExportsOfModule(module).map((exported) => {
        const symbol = exported.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported
        const name = `${join('@tollkeeper/sdk', path)} ${exported.name}`
        const examples = symbol.getJsDocTags(checker).filter((tag) => tag.name === 'example')
        return {
          name,
          isValue: (symbol.flags & SymbolFlags.Value) !== 0,
          summary: symbol.getDocumentationComment(checker).split('\n\n')[0] ?? '',
          examples: examples.map(({ text = '' }) => {
            const source = `${text}\n`
            return { name, source, isRun: true, expected: printedBy(source) }
          }),
        }
      })
    })
  } finally {
    api.close()
  }
}

/** Type-checks all snippets in one run of the compiler. @throws an error with the compiler's messages and the names of the snippets. */
export async function compile(snippets: readonly Snippet[]): Promise<void> {
  const folder = await mkdtemp(join(import.meta.dirname, '.snippets-'))
  try {
    await Promise.all(
      snippets.map(({ source }, index) => writeFile(join(folder, `${index}.ts`), `${source}\nexport {}\n`)),
    )
    await writeFile(
      join(folder, 'tsconfig.json'),
      JSON.stringify({ extends: '../../../tsconfig.json', include: ['*.ts'], exclude: [] }),
    )
    const options = { cwd: folder }
    await run(join(root, 'node_modules/.bin/tsc'), ['-p', '.', '--pretty', 'false'], options).catch(
      ({ stdout }: { stdout: string }) => {
        throw new Error(stdout.replaceAll(/^(\d+)\.ts/gm, (_, index) => snippets[Number(index)]?.name ?? ''))
      },
    )
  } finally {
    await rm(folder, { recursive: true })
  }
}

/**
 * Runs snippets in sequence in one process.
 *
 * @param place the Node binary that runs the snippets, and the folder of the package that they import. Default: this Node, and the checkout.
 * @returns the output of each snippet.
 */
export async function runSnippets(
  snippets: readonly Snippet[],
  { node = process.execPath, cwd = root }: { node?: string; cwd?: string } = {},
): Promise<string[]> {
  const folder = await mkdtemp(join(cwd === root ? import.meta.dirname : cwd, '.snippets-'))
  try {
    const names = snippets.map((_, index) => `${index}.js`)
    // Some of the Node versions that the package supports can't strip types.
    const sources = await Promise.all(
      snippets.map(({ source }) => transform(source, { loader: 'ts', format: 'esm', target: 'es2022' })),
    )
    await Promise.all(sources.map(({ code }, index) => writeFile(join(folder, `${index}.js`), code)))
    const main = `
      import { formatWithOptions } from 'node:util'
      const printed = []
      for (const name of ${JSON.stringify(names)}) {
        let text = ''
        console.log = (...values) => { text += formatWithOptions({ breakLength: 116 }, ...values) + '\\n' }
        await import('./' + name)
        printed.push(text)
      }
      process.stdout.write(JSON.stringify(printed))`
    await writeFile(join(folder, 'main.js'), main)
    const args = ['--conditions=@tollkeeper/source', join(relative(cwd, folder), 'main.js')]
    const { stdout } = await run(node, args, { cwd })
    return JSON.parse(stdout)
  } finally {
    await rm(folder, { recursive: true })
  }
}

function printedBy(source: string): string {
  return /((?:^\/\/ .*\n)+)$/m.exec(source)?.[1]?.replaceAll(/^\/\/ /gm, '') ?? ''
}

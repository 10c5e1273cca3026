/**
 * Writes sdk/surface.md: the built declarations of everything that the entry points of `@tollkeeper/sdk` export. So every change of the
 * public API appears as a diff of that file, and `tools/sdkSurface.test.ts` fails until the file is updated.
 */
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'
import { isIdentifier, isVariableDeclaration, type Node } from 'typescript/unstable/ast'
import {
  API,
  type Checker,
  type Project,
  SymbolFlags,
  type Symbol as TypeSymbol,
} from 'typescript/unstable/sync'

const run = promisify(execFile)
const root = join(import.meta.dirname, '..')
const sdk = join(root, 'sdk')

export const surfaceFile = 'sdk/surface.md'

/** An exported or reachable name, and the text of its declarations. */
type Declared = { file: string; name: string; text: string; nodes: Node[] }

/** Renders sdk/surface.md from the current sources. */
export async function renderSurface(): Promise<string> {
  const folder = await mkdtemp(join(sdk, '.surface-'))
  try {
    await emitDeclarations(folder)
    const { exports } = JSON.parse(await readFile(join(sdk, 'package.json'), 'utf8')) as {
      exports: Record<string, { types?: string }>
    }
    const entries = Object.entries(exports).flatMap(([path, { types }]) =>
      // `./*` is for the other packages of this repository, and isn't published.
      types === undefined ? [] : [[join('@tollkeeper/sdk', path), types.replace('./dist/', '')] as const],
    )
    const files = entries.map(([, file]) => file)
    await writeFile(
      join(folder, 'tsconfig.json'),
      JSON.stringify({
        extends: '../../tsconfig.json',
        compilerOptions: { noEmit: true },
        files,
        exclude: [],
      }),
    )
    const api = new API({ cwd: root })
    try {
      const [project] = api.updateSnapshot({ openProjects: [join(folder, 'tsconfig.json')] }).getProjects()
      if (!project) throw new Error(`${folder}/tsconfig.json isn't a TypeScript project`)
      return `${renderEntries(project, folder, entries)}\n`
    } finally {
      api.close()
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function emitDeclarations(folder: string): Promise<void> {
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  const flags = ['--emitDeclarationOnly', '--removeComments']
  const args = [tsc, '-p', join(sdk, 'tsconfig.build.json'), '--outDir', folder, ...flags]
  await run(process.execPath, args).catch(({ stdout }: { stdout: string }) => {
    throw new Error(`tsc: ${stdout}`)
  })
}

function renderEntries(
  project: Project,
  folder: string,
  entries: readonly (readonly [name: string, file: string])[],
): string {
  const { program, checker } = project
  /** The entry point under which a declaration was listed first, by {@link keyOf}. */
  const listed = new Map<string, string>()
  const shown: Declared[] = []
  const sections = entries.map(([entry, file]) => {
    const source = program.getSourceFile(join(folder, file))
    const module = source && checker.getSymbolAtLocation(source)
    if (!module) throw new Error(`${file} isn't a module`)
    const names = checker.getExportsOfModule(module).toSorted((a, b) => compare(a.name, b.name))
    const lines = names.map((exported) => {
      const declared = declarationOf(project, folder, exported)
      const first = listed.get(keyOf(declared))
      if (first !== undefined) return `export { ${exported.name} } from '${first}'`
      listed.set(keyOf(declared), entry)
      shown.push(declared)
      return declared.text
    })
    return `## ${entry}\n\n${names.length} names.\n\n\`\`\`ts\n${lines.join('\n')}\n\`\`\``
  })
  const reached = reachedBy(project, folder, shown, listed)
  return [
    '# Public surface of @tollkeeper/sdk',
    'Made by `npm run generate` from the built declarations; a test fails if it differs. Removing a line breaks users, so it\nneeds a row in [upgrading.md](../docs/upgrading.md).',
    ...sections,
    '## Not exported, but named above',
    `\`\`\`ts\n${reached.map(({ text }) => text).join('\n')}\n\`\`\``,
  ].join('\n\n')
}

/** Returns the types that aren't exported, but that exported declarations use, directly or through other types. Their members are public as well. */
function reachedBy(
  project: Project,
  folder: string,
  shown: readonly Declared[],
  listed: ReadonlyMap<string, string>,
): Declared[] {
  const found = new Map<string, Declared>()
  const queue = [...shown]
  for (let declared = queue.pop(); declared !== undefined; declared = queue.pop()) {
    for (const symbol of declared.nodes.flatMap((node) => namedIn(project.checker, node))) {
      const next = symbol.declarations.length === 0 ? undefined : declarationOf(project, folder, symbol)
      if (next === undefined || next.text === '' || next.file.startsWith('..')) continue
      const key = keyOf(next)
      if (listed.has(key) || found.has(key)) continue
      found.set(key, next)
      queue.push(next)
    }
  }
  return [...found.values()].toSorted((a, b) => compare(a.name, b.name) || compare(a.file, b.file))
}

/** Returns the symbols of all types that a declaration names. */
function namedIn(checker: Checker, declaration: Node): TypeSymbol[] {
  const identifiers: Node[] = []
  const visit = (node: Node): void => {
    if (isIdentifier(node)) identifiers.push(node)
    node.forEachChild(visit)
  }
  visit(declaration)
  return checker.getSymbolAtLocation(identifiers).flatMap((symbol) => {
    if (symbol === undefined) return []
    const target = resolve(checker, symbol)
    const isNamed = (target.flags & (SymbolFlags.Type | SymbolFlags.Variable | SymbolFlags.Function)) !== 0
    const isParameter = (target.flags & (SymbolFlags.TypeParameter | SymbolFlags.TypeLiteral)) !== 0
    return isNamed && !isParameter ? [target] : []
  })
}

function resolve(checker: Checker, symbol: TypeSymbol): TypeSymbol {
  return symbol.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol
}

function declarationOf(project: Project, folder: string, exported: TypeSymbol): Declared {
  const symbol = resolve(project.checker, exported)
  const handles = symbol.declarations
  const file = relative(folder, handles[0]?.path ?? '')
  // Declarations of other packages aren't listed.
  if (file.startsWith('..') || file.includes('node_modules'))
    return { file: '..', name: symbol.name, text: '', nodes: [] }
  // Types generated from the API's description have their own file and test.
  const isGenerated = file.includes('/generated/')
  const nodes = isGenerated ? [] : handles.map((handle) => statementOf(handle.resolve(project)))
  const texts = nodes.map((node) => (node === undefined ? '' : printed(node)))
  const text = isGenerated
    ? `// ${symbol.name}: generated, in src/${file.replace(/d\.ts$/, 'ts')}`
    : texts.filter((one) => one !== '').join('\n')
  return { file, name: symbol.name, text, nodes: nodes.filter((node) => node !== undefined) }
}

/**
 * Returns the statement of a declaration. The statement of `const x: T` is two levels above the variable. Returns `undefined` for a nested
 * declaration.
 */
function statementOf(node: Node | undefined): Node | undefined {
  if (node === undefined) return undefined
  const statement = isVariableDeclaration(node) ? node.parent.parent : node
  const source = node.getSourceFile()
  return statement.parent === source ? statement : undefined
}

function printed(statement: Node): string {
  return statement
    .getText()
    .replace(/^export (default )?/, '')
    .replace(/^declare /, '')
    .replaceAll(/^ +/gm, (spaces) => ' '.repeat(spaces.length / 2))
}

function keyOf({ file, name }: Declared): string {
  return `${file} ${name}`
}

/** Compares by code units, so that the order is the same in every locale. */
function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}

if (import.meta.main) await writeFile(join(root, surfaceFile), await renderSurface())

import { glob, readFile } from 'node:fs/promises'
import { dirname, join, relative, resolve } from 'node:path'
import {
  type Expression,
  isCallExpression,
  isFunctionLikeDeclaration,
  isIdentifier,
  isNoSubstitutionTemplateLiteral,
  isPropertyAccessExpression,
  isStringLiteral,
  isTemplateExpression,
  type Node,
  type SourceFile,
} from 'typescript/unstable/ast'
import { API } from 'typescript/unstable/sync'
import { readManifests } from '../../tools/build/workspaces.ts'
import { root } from '../support/processes.ts'

export type Import = { from: string; to: string }
export type Declared = { file: string; name: string; lines: number }
/**
 * Text that may be SQL, with the name of the TypeScript or SQL function that contains it.
 */
export type Written = { file: string; name: string; text: string }

/** Our source files by their path in the repository, parsed by the compiler of `npm run check`. */
export type SourceFiles = Map<string, SourceFile>

export function readSourceFiles(): SourceFiles {
  const api = new API({ cwd: root })
  try {
    const snapshot = api.updateSnapshot({
      openProjects: ['tsconfig.json', 'indexer/tsconfig.json', 'compat/tsconfig.json'],
    })
    const files: SourceFiles = new Map()
    for (const { program } of snapshot.getProjects()) {
      for (const name of program.getSourceFileNames()) {
        const file = relative(root, name)
        if (file.startsWith('..') || file.includes('node_modules')) continue
        const source = program.getSourceFile(name)
        if (source) files.set(file, source)
      }
    }
    return files
  } finally {
    api.close()
  }
}

/** Returns every `import`, `export … from` and `import()` by which one of our files uses another, including types. */
export async function readImports(files: SourceFiles): Promise<Import[]> {
  const packages = await readWorkspaces()
  const target = (from: string, specifier: string) => {
    if (specifier.startsWith('.')) return relative(root, resolve(root, dirname(from), specifier))
    const found = packages.find(({ name }) => specifier === name || specifier.startsWith(`${name}/`))
    return found && targetIn(found, `.${specifier.slice(found.name.length)}`)
  }
  return [...files].flatMap(([from, source]) =>
    source.imports.flatMap((specifier) => {
      const to = target(from, 'text' in specifier ? String(specifier.text) : '')
      return to === undefined ? [] : [{ from, to }]
    }),
  )
}

type Workspace = { name: string; folder: string; exports: Record<string, unknown> }

/** Returns our own packages, each with its name, its folder and its exports. */
async function readWorkspaces(): Promise<Workspace[]> {
  const manifests = [...(await readManifests(root))] as [string, Partial<Workspace>][]
  return manifests.flatMap(([path, { name = '', exports }]) =>
    exports ? [{ name, folder: dirname(path), exports }] : [],
  )
}

/**
 * Returns the file of a package's export: from the export's own entry, or else from the pattern `./*`.
 */
function targetIn({ folder, exports }: Workspace, path: string): string | undefined {
  const pathOf = (entry: unknown): string | undefined => {
    if (typeof entry === 'string') return entry
    const conditions = (entry ?? {}) as Record<string, string>
    return conditions['@tollkeeper/source'] ?? conditions.default
  }
  const file = pathOf(exports[path]) ?? pathOf(exports['./*'])?.replace('*', path.slice(2))
  return file && join(folder, file)
}

/** Returns every function with a body, with its length from its first line to its last. */
export function readFunctions(files: SourceFiles): Declared[] {
  return [...files].flatMap(([file, source]) => {
    const found: Declared[] = []
    const lineAt = (position: number) => source.getLineAndCharacterOfPosition(position).line
    const visit = (node: Node): void => {
      if (isFunctionLikeDeclaration(node) && 'body' in node && node.body)
        found.push({
          file,
          name: nameOf(node, source),
          lines: lineAt(node.end) - lineAt(node.getStart(source)) + 1,
        })
      node.forEachChild(visit)
    }
    source.forEachChild(visit)
    return found
  })
}

/** Returns every string and template in our source files, with the function around it. */
export function readStrings(files: SourceFiles): Written[] {
  return [...files].flatMap(([file, source]) => {
    const found: Written[] = []
    const visit = (node: Node, name: string): void => {
      if ([isStringLiteral, isNoSubstitutionTemplateLiteral, isTemplateExpression].some((is) => is(node)))
        found.push({ file, name, text: node.getText(source) })
      const isNamed = isFunctionLikeDeclaration(node) && 'body' in node && node.body
      const own = isNamed ? nameOf(node, source) : name
      node.forEachChild((child) => visit(child, own))
    }
    source.forEachChild((node) => visit(node, 'module'))
    return found
  })
}

/** Returns every SQL function in our `.sql` files, and for each file the SQL outside of functions, without comments. */
export async function readSqlTexts(): Promise<Written[]> {
  const found: Written[] = []
  const exclude = (name: string) => /(^|\/)(node_modules|dist|\.\w+)$/.test(name)
  for await (const file of glob('**/*.sql', { cwd: root, exclude })) {
    const text = await readFile(resolve(root, file), 'utf8')
    const parts = text.replaceAll(/--.*$/gm, '').split(/^create (?:or replace )?function /m)
    for (const [at, part] of parts.entries())
      found.push({ file, name: at === 0 ? file : (part.match(/^[\w.]+/)?.[0] ?? file), text: part })
  }
  return found
}

export type TestName = {
  file: string
  name: string
  /** Titles of the `describe` calls around the test, outermost first. */
  groups: readonly string[]
}

/** Returns the name of every test, as written: `test('…')`, `test.each(…)('…')`, `test.skipIf(…)('…')`. */
export function readTestNames(files: SourceFiles): TestName[] {
  return [...files].flatMap(([file, source]) => {
    const found: TestName[] = []
    const visit = (node: Node, groups: readonly string[]): void => {
      let inner = groups
      if (isCallExpression(node)) {
        const [called, title] = [calledName(node.expression), titleOf(node.arguments[0], source)]
        if (called === 'test' && title !== undefined) found.push({ file, name: title, groups })
        if (called === 'describe' && title !== undefined) inner = [...groups, title]
      }
      node.forEachChild((child) => visit(child, inner))
    }
    source.forEachChild((child) => visit(child, []))
    return found
  })
}

function titleOf(argument: Expression | undefined, source: SourceFile): string | undefined {
  if (!argument) return undefined
  const isText = [isStringLiteral, isNoSubstitutionTemplateLiteral, isTemplateExpression].some((is) =>
    is(argument),
  )
  return isText ? argument.getText(source).slice(1, -1) : undefined
}

/** Returns the first name of a call: `test` in `test.each(…)('…')`. */
function calledName(called: Expression): string | undefined {
  if (isIdentifier(called)) return called.text
  return isPropertyAccessExpression(called) || isCallExpression(called)
    ? calledName(called.expression)
    : undefined
}

/**
 * Returns the name of a function. An unnamed closure gets the name of the variable or property that holds it,
 * or of the call it is passed to.
 */
function nameOf(node: Node, source: SourceFile): string {
  const named = node as { name?: Node; expression?: Node }
  if (named.name) return named.name.getText(source)
  if (!node.parent || node.parent === source) return 'anonymous'
  return named.expression && !('body' in node)
    ? named.expression.getText(source)
    : nameOf(node.parent, source)
}

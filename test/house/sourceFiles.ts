import { readFile } from 'node:fs/promises'
import { dirname, relative, resolve } from 'node:path'
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
import { root } from '../support/processes.ts'

export type Import = { from: string; to: string }
export type Declared = { file: string; name: string; lines: number }

/** Our source files by their path in the repository, as the compiler of `npm run check` parses them. */
export type SourceFiles = Map<string, SourceFile>

export function readSourceFiles(): SourceFiles {
  const api = new API({ cwd: root })
  try {
    const snapshot = api.updateSnapshot({ openProjects: ['tsconfig.json', 'indexer/tsconfig.json'] })
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

/** Every import, export from and `import()` of one of our files by another; types count too. */
export async function readImports(files: SourceFiles): Promise<Import[]> {
  const { imports } = JSON.parse(await readFile(resolve(root, 'package.json'), 'utf8')) as {
    imports: Record<string, string>
  }
  const aliases = Object.entries(imports).map(([alias, path]) => ({ alias: alias.replace('*', ''), path }))
  const target = (from: string, specifier: string) => {
    if (specifier.startsWith('.')) return relative(root, resolve(root, dirname(from), specifier))
    const found = aliases.find(({ alias }) => specifier.startsWith(alias))
    return found?.path.replace('./', '').replace('*', specifier.slice(found.alias.length))
  }
  return [...files].flatMap(([from, source]) =>
    source.imports.flatMap((specifier) => {
      const to = target(from, 'text' in specifier ? String(specifier.text) : '')
      return to === undefined ? [] : [{ from, to }]
    }),
  )
}

/** Every function with a body, with its length from its first line to its last. */
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

/** The name of every test, as it is written: `test('…')`, `test.each(…)('…')`, `test.skipIf(…)('…')`. */
export function readTestNames(files: SourceFiles): { file: string; name: string }[] {
  return [...files].flatMap(([file, source]) => {
    const found: { file: string; name: string }[] = []
    const visit = (node: Node): void => {
      const [name] = isCallExpression(node) && isTest(node.expression) ? node.arguments : []
      if (
        name &&
        [isStringLiteral, isNoSubstitutionTemplateLiteral, isTemplateExpression].some((is) => is(name))
      )
        found.push({ file, name: name.getText(source).slice(1, -1) })
      node.forEachChild(visit)
    }
    source.forEachChild(visit)
    return found
  })
}

function isTest(called: Expression): boolean {
  if (isIdentifier(called)) return called.text === 'test'
  return isPropertyAccessExpression(called) || isCallExpression(called) ? isTest(called.expression) : false
}

/** A closure without a name of its own goes by the variable or property that holds it, or by the call it is passed to. */
function nameOf(node: Node, source: SourceFile): string {
  const named = node as { name?: Node; expression?: Node }
  if (named.name) return named.name.getText(source)
  if (!node.parent || node.parent === source) return 'anonymous'
  return named.expression && !('body' in node)
    ? named.expression.getText(source)
    : nameOf(node.parent, source)
}

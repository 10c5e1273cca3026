import { describe, expect, test } from 'vitest'
import {
  type Import,
  readFunctions,
  readImports,
  readSourceFiles,
  readSqlTexts,
  readStrings,
  readTestNames,
  type Written,
} from './sourceFiles.ts'

/** The folder of each area. */
const areas = {
  sdk: 'sdk',
  runtime: 'packages/runtime',
  chain: 'packages/chain',
  ledger: 'packages/ledger',
  api: 'api',
  keeper: 'keeper',
  indexer: 'indexer',
}
type Area = keyof typeof areas

/**
 * The areas that each area may import besides itself and `contracts/`. Everything else (apps, tools, test,
 * bench, examples) may import every area.
 */
const allowed: Record<Area, readonly Area[]> = {
  sdk: [],
  runtime: ['sdk'],
  chain: ['sdk', 'runtime'],
  ledger: ['sdk', 'runtime', 'chain'],
  api: ['sdk', 'runtime', 'chain', 'ledger'],
  keeper: ['sdk', 'runtime', 'chain', 'ledger'],
  indexer: ['sdk', 'runtime', 'chain', 'ledger'],
}

/** Areas and programs that have folders. The files at their roots connect the folders, so no folder may import these files. */
const foldered = [
  'sdk/src',
  'packages/runtime',
  'packages/chain',
  'packages/ledger',
  'api',
  'keeper',
  'indexer',
  'apps/cli',
  'apps/dashboard',
  'apps/devstack',
  'apps/mcp',
  'tools',
  'bench',
]

/**
 * The only import that is allowed although the rules forbid it: Ponder's root is the folder `indexer`, and its
 * `ponder.config.ts` imports the repository's `ponder.config.ts`.
 */
const inversions = ['indexer/ponder.config.ts > ponder.config.ts']

const longest = 150

const isTestFile = (file: string) => /\.test\.tsx?$|(^|\/)test\//.test(file)
const areaOf = (file: string) =>
  (Object.keys(areas) as Area[]).find((area) => file.startsWith(`${areas[area]}/`))
const described = ({ from, to }: Import) => `${from} > ${to}`

const files = readSourceFiles()
const imports = (await readImports(files)).filter(({ from }) => !isTestFile(from))

describe('imports between the project’s areas', () => {
  test('default: every imported file exists', () => {
    const missing = imports.filter(
      ({ to }) => !files.has(to) && !to.endsWith('.json') && !to.endsWith('.css'),
    )
    expect(missing.map(described)).toEqual([])
    expect(imports.length).toBeGreaterThan(500)
  })

  test('behavior: each area imports only areas that it may import', () => {
    const against = imports.filter(({ from, to }) => {
      const area = areaOf(from)
      if (!area || to.startsWith(`${areas[area]}/`) || to.startsWith('contracts/')) return false
      const other = areaOf(to)
      return other === undefined || !allowed[area].includes(other)
    })
    expect(against.map(described)).toEqual(inversions)
  })

  test('behavior: the SDK’s protocol folder imports no other folder of the SDK', () => {
    const folder = 'sdk/src/protocol/'
    const outward = imports.filter(({ from, to }) => from.startsWith(folder) && !to.startsWith(folder))
    expect(outward.map(described)).toEqual([])
  })

  test('behavior: files don’t import each other in a cycle', () => {
    expect(findCycles(imports)).toEqual([])
  })

  test('behavior: folders of an area don’t import each other in a cycle', () => {
    expect(findCycles(folderEdges(imports))).toEqual([])
    expect(folderEdges(imports).length).toBeGreaterThan(50)
  })

  test('behavior: no folder imports a file at the root of its area', () => {
    const empty = foldered.filter((base) => ![...files.keys()].some((file) => placeOf(file)?.base === base))
    expect(empty).toEqual([])
    const upward = imports.filter(({ from, to }) => {
      const [a, b] = [placeOf(from), placeOf(to)]
      return a && b && a.base === b.base && a.folder !== undefined && b.folder === undefined
    })
    expect(upward.map(described)).toEqual([])
  })

  test('behavior: every file of the ledger is in a subfolder', () => {
    const beside = [...files.keys()].filter((file) => /^packages\/ledger\/[^/]+\.ts$/.test(file))
    expect(beside).toEqual([])
  })

  test('behavior: finds import cycles', () => {
    const edges = ['a > b', 'b > c', 'c > b', 'c > d', 'd > e', 'e > f', 'f > d', 'f > f'].map((edge) => {
      const [from = '', to = ''] = edge.split(' > ')
      return { from, to }
    })
    expect(findCycles(edges).sort()).toEqual(['b, c', 'd, e, f'])
  })
})

describe('stages', () => {
  test('behavior: only packages/ledger/queue/stages.ts defines stages, in SQL and in TypeScript', () => {
    const isElse = (file: string) =>
      /^(packages\/ledger|keeper|api|apps|tools)\/.*\.tsx?$/.test(file) && !isTestFile(file)
    const conditions = /\bstage\s*(===?|!==?|<>|in|not in)\s*\(?'|\b(batch_id|due_at|held_by) is (not )?null/
    const says = [...files].filter(([file, text]) => isElse(file) && conditions.test(text.text))
    expect(says.map(([file]) => file)).toEqual(['packages/ledger/queue/stages.ts'])
  })
})

describe('sales', () => {
  test('behavior: only SQL functions and the search for sales read the table of sales on tabs', async () => {
    const reads = /\b(from|join|into|update|using)\s+"?tab_sale\b/i
    const isProduct = ({ file }: Written) => !isTestFile(file) && !file.startsWith('bench/')
    const texts = [...(await readSqlTexts()), ...readStrings(files)].filter(isProduct)
    const readers = texts.filter(({ text }) => reads.test(text))
    expect([...new Set(readers.map(({ file }) => file))].sort()).toEqual([
      'packages/ledger/functions/add_to_revenue.sql',
      'packages/ledger/functions/arrived_of_sale.sql',
      'packages/ledger/functions/delete_parts_of_payments.sql',
      'packages/ledger/functions/take_tabs.sql',
      'packages/ledger/migrations/0001_schema.sql',
      'packages/ledger/sales/sales.ts',
    ])
  })
})

describe('writers', () => {
  test('behavior: only `store_payments` inserts payments, and only `store_payments` and `reopenPayments` add them to the queue', async () => {
    const isProduct = ({ file }: Written) => !isTestFile(file) && !file.startsWith('bench/')
    const texts = [...(await readSqlTexts()), ...readStrings(files)].filter(isProduct)
    expect(texts.filter(({ file }) => file.endsWith('.sql')).length).toBeGreaterThan(30)
    expect(insertersOf('payment', texts)).toEqual(['store_payments'])
    expect(insertersOf('queue', texts)).toEqual(['reopenPayments', 'store_payments'])
  })

  test.each([
    'insert into payment (id) values (1)',
    'INSERT INTO\n  tollkeeper.payment as p (id) select 1',
    'insert into "payment" values (1)',
    `insert into \${sql('payment')} values (1)`,
    'merge into payment using given on true when not matched then insert values (1)',
    'copy payment from stdin',
  ])('behavior: finds the insert in %s', (text) => {
    expect(insertersOf('payment', [{ file: 'a', name: 'insertsOne', text }])).toEqual(['insertsOne'])
  })

  test.each([
    'insert into payment_copy values (1)',
    'delete from payment',
    'insert into tab_payment values (1)',
  ])('behavior: finds no insert in %s', (text) => {
    expect(insertersOf('payment', [{ file: 'a', name: 'insertsNone', text }])).toEqual([])
  })
})

describe('functions', () => {
  test('behavior: no function in the source is longer than 150 lines', () => {
    const isMeasured = (file: string) => !isTestFile(file) && !/(^|\/)(bench|generated)\//.test(file)
    const functions = readFunctions(files).filter(({ file }) => isMeasured(file))
    expect(functions.length).toBeGreaterThan(1_000)
    const long = functions.filter(({ lines }) => lines > longest)
    expect(long).toEqual([])
  })
})

describe('object literals', () => {
  test('behavior: no object literal contains the spread of another object literal', () => {
    const spreads = [...files].filter(([, { text }]) => /\.\.\.\s*\{/.test(text)).map(([file]) => file)
    expect(spreads).toEqual([])
  })
})

describe('tests', () => {
  test('each title states what happens, as a line of a specification', () => {
    const names = readTestNames(files)
    expect(names.length).toBeGreaterThan(500)
    // "should" promises instead of stating. Older titles have a prefix, such as `behavior: `.
    const others = names.filter(({ name }) => /^(should|test|it)\b|[.!]$/i.test(name) || name.trim() === '')
    expect(others).toEqual([])
  })
})

/** Returns the names of the functions that insert rows into a table. */
function insertersOf(table: string, texts: readonly Written[]): string[] {
  const insert = new RegExp(
    `\\b(insert\\s+into|merge\\s+into|copy)\\s+(\\$\\{\\w+\\(['"])?(\\w+\\.)?"?${table}\\b(?!\\.)`,
    'i',
  )
  return [...new Set(texts.filter(({ text }) => insert.test(text)).map(({ name }) => name))].sort()
}

/**
 * Finds the entry of {@link foldered} that contains a file, and the entry's folder that contains the file. `folder` is undefined
 * if the file is directly in the entry.
 */
function placeOf(file: string): { base: string; folder: string | undefined } | undefined {
  const base = foldered.find((one) => file.startsWith(`${one}/`))
  if (base === undefined) return undefined
  const folders = file
    .slice(base.length + 1)
    .split('/')
    .slice(0, -1)
  const depth = base === 'api' && folders[0] === 'payments' ? 2 : 1
  return { base, folder: folders.length > 0 ? [base, ...folders.slice(0, depth)].join('/') : undefined }
}

/** Returns the imports between folders of the same entry of {@link foldered}. */
function folderEdges(all: readonly Import[]): Import[] {
  const edges = all.flatMap(({ from, to }): Import[] => {
    const [a, b] = [placeOf(from), placeOf(to)]
    if (!a?.folder || !b?.folder || a.base !== b.base || a.folder === b.folder) return []
    return [{ from: a.folder, to: b.folder }]
  })
  return [...new Map(edges.map((edge) => [described(edge), edge])).values()]
}

/** Returns the groups of files that reach each other (Tarjan's strongly connected components). */
function findCycles(edges: readonly Import[]): string[] {
  const targets = Map.groupBy(edges, ({ from }) => from)
  const order = new Map<string, number>()
  const stack: string[] = []
  const cycles: string[] = []
  const visit = (file: string): number => {
    let low = order.size
    order.set(file, low)
    stack.push(file)
    for (const { to } of targets.get(file) ?? []) {
      const seen = order.get(to)
      if (seen === undefined) low = Math.min(low, visit(to))
      else if (stack.includes(to)) low = Math.min(low, seen)
    }
    if (low === order.get(file)) {
      const group = stack.splice(stack.indexOf(file))
      if (group.length > 1) cycles.push(group.sort().join(', '))
    }
    return low
  }
  for (const file of targets.keys()) if (!order.has(file)) visit(file)
  return cycles
}

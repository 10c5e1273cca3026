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

/** Where each room lies. */
const rooms = {
  sdk: 'sdk',
  runtime: 'packages/runtime',
  chain: 'packages/chain',
  ledger: 'packages/ledger',
  api: 'api',
  keeper: 'keeper',
  indexer: 'indexer',
}
type Room = keyof typeof rooms

/** What each room may import besides itself and `contracts/`. All else (apps, tools, test, bench, examples) may import every room. */
const allowed: Record<Room, readonly Room[]> = {
  sdk: [],
  runtime: ['sdk'],
  chain: ['sdk', 'runtime'],
  ledger: ['sdk', 'runtime', 'chain'],
  api: ['sdk', 'runtime', 'chain', 'ledger'],
  keeper: ['sdk', 'runtime', 'chain', 'ledger'],
  indexer: ['sdk', 'runtime', 'chain', 'ledger'],
}

/** Rooms and programs that have folders. The files directly in one of them wire its folders, so no folder may import them. */
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

/** Ponder reads its root's `ponder.config.ts` (here: the repository's) from its own folder: the one inversion. */
const inversions = ['indexer/ponder.config.ts > ponder.config.ts']

const longest = 150

const isTestFile = (file: string) => /\.test\.tsx?$|(^|\/)test\//.test(file)
const roomOf = (file: string) =>
  (Object.keys(rooms) as Room[]).find((room) => file.startsWith(`${rooms[room]}/`))
const described = ({ from, to }: Import) => `${from} > ${to}`

const files = readSourceFiles()
const imports = (await readImports(files)).filter(({ from }) => !isTestFile(from))

describe('the imports between rooms', () => {
  test('default: every import is of a file that exists', () => {
    const missing = imports.filter(
      ({ to }) => !files.has(to) && !to.endsWith('.json') && !to.endsWith('.css'),
    )
    expect(missing.map(described)).toEqual([])
    expect(imports.length).toBeGreaterThan(500)
  })

  test('behavior: each room imports only those before it, and nobody imports a process', () => {
    const against = imports.filter(({ from, to }) => {
      const room = roomOf(from)
      if (!room || to.startsWith(`${rooms[room]}/`) || to.startsWith('contracts/')) return false
      const other = roomOf(to)
      return other === undefined || !allowed[room].includes(other)
    })
    expect(against.map(described)).toEqual(inversions)
  })

  test("behavior: the sdk's protocol imports nothing else of the sdk", () => {
    const folder = 'sdk/src/protocol/'
    const outward = imports.filter(({ from, to }) => from.startsWith(folder) && !to.startsWith(folder))
    expect(outward.map(described)).toEqual([])
  })

  test('behavior: no file imports itself by way of others', () => {
    expect(findCircles(imports)).toEqual([])
  })

  test('behavior: no folder of a room reaches itself by way of others', () => {
    expect(findCircles(folderEdges(imports))).toEqual([])
    expect(folderEdges(imports).length).toBeGreaterThan(50)
  })

  test('behavior: no folder imports a file that lies directly in the room', () => {
    const empty = foldered.filter((base) => ![...files.keys()].some((file) => placeOf(file)?.base === base))
    expect(empty).toEqual([])
    const upward = imports.filter(({ from, to }) => {
      const [a, b] = [placeOf(from), placeOf(to)]
      return a && b && a.base === b.base && a.folder !== undefined && b.folder === undefined
    })
    expect(upward.map(described)).toEqual([])
  })

  test('behavior: every file of the ledger lies in one of its folders', () => {
    const beside = [...files.keys()].filter((file) => /^packages\/ledger\/[^/]+\.ts$/.test(file))
    expect(beside).toEqual([])
  })

  test('behavior: circles are found', () => {
    const edges = ['a > b', 'b > c', 'c > b', 'c > d', 'd > e', 'e > f', 'f > d', 'f > f'].map((edge) => {
      const [from = '', to = ''] = edge.split(' > ')
      return { from, to }
    })
    expect(findCircles(edges).sort()).toEqual(['b, c', 'd, e, f'])
  })
})

describe('stages', () => {
  test('behavior: only packages/ledger/queue/stages.ts says what a stage is, in SQL and in TypeScript', () => {
    const isElse = (file: string) =>
      /^(packages\/ledger|keeper|api|apps|tools)\/.*\.tsx?$/.test(file) && !isTestFile(file)
    const conditions = /\bstage\s*(===?|!==?|<>|in|not in)\s*\(?'|\b(batch_id|due_at|held_by) is (not )?null/
    const says = [...files].filter(([file, text]) => isElse(file) && conditions.test(text.text))
    expect(says.map(([file]) => file)).toEqual(['packages/ledger/queue/stages.ts'])
  })
})

describe('sales', () => {
  test('behavior: only the search for sales and SQL functions read what was sold on tabs apart from payments', async () => {
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
  test('behavior: one function inserts payments, and only these put them into the queue', async () => {
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
  ])('behavior: %s is found', (text) => {
    expect(insertersOf('payment', [{ file: 'a', name: 'insertsOne', text }])).toEqual(['insertsOne'])
  })

  test.each([
    'insert into payment_copy values (1)',
    'delete from payment',
    'insert into tab_payment values (1)',
  ])('behavior: %s inserts no payment', (text) => {
    expect(insertersOf('payment', [{ file: 'a', name: 'insertsNone', text }])).toEqual([])
  })
})

describe('functions', () => {
  test('behavior: none in the source is longer than 150 lines', () => {
    const isMeasured = (file: string) => !isTestFile(file) && !/(^|\/)(bench|generated)\//.test(file)
    const functions = readFunctions(files).filter(({ file }) => isMeasured(file))
    expect(functions.length).toBeGreaterThan(1_000)
    const long = functions.filter(({ lines }) => lines > longest)
    expect(long).toEqual([])
  })
})

describe('object literals', () => {
  test('behavior: none spreads another literal into itself', () => {
    const spreads = [...files].filter(([, { text }]) => /\.\.\.\s*\{/.test(text)).map(([file]) => file)
    expect(spreads).toEqual([])
  })
})

describe('tests', () => {
  test('behavior: each name says whether it shows the default, arguments, a behaviour or an error', () => {
    const names = readTestNames(files)
    expect(names.length).toBeGreaterThan(500)
    const others = names.filter(({ name }) => !/^(default$|(default|args|behavior|error): )/.test(name))
    expect(others).toEqual([])
  })
})

/** The names of the functions that insert rows into a table. */
function insertersOf(table: string, texts: readonly Written[]): string[] {
  const insert = new RegExp(
    `\\b(insert\\s+into|merge\\s+into|copy)\\s+(\\$\\{\\w+\\(['"])?(\\w+\\.)?"?${table}\\b(?!\\.)`,
    'i',
  )
  return [...new Set(texts.filter(({ text }) => insert.test(text)).map(({ name }) => name))].sort()
}

/** Finds which entry of {@link foldered} holds a file, and in which of its folders; undefined if it lies directly there. */
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

/** The groups of files that reach each other (Tarjan's strongly connected components). */
function findCircles(edges: readonly Import[]): string[] {
  const targets = Map.groupBy(edges, ({ from }) => from)
  const order = new Map<string, number>()
  const stack: string[] = []
  const circles: string[] = []
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
      if (group.length > 1) circles.push(group.sort().join(', '))
    }
    return low
  }
  for (const file of targets.keys()) if (!order.has(file)) visit(file)
  return circles
}

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
    // Shelves are folders: what lies in a room's drawer itself only wires them, but for the rooms that have none.
    const drawer = [...files.keys()].filter((file) => /^packages\/ledger\/[^/]+\.ts$/.test(file))
    expect(drawer).toEqual([])
    expect(folderEdges(imports).length).toBeGreaterThan(50)
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

describe('writers', () => {
  test('behavior: only these functions insert payments, and put them into the queue', async () => {
    const isProduct = ({ file }: Written) => !isTestFile(file) && !file.startsWith('bench/')
    const texts = [...(await readSqlTexts()), ...readStrings(files)].filter(isProduct)
    expect(texts.filter(({ file }) => file.endsWith('.sql')).length).toBeGreaterThan(30)
    expect(insertersOf('payment', texts)).toEqual(['store_payments', 'take_tabs'])
    expect(insertersOf('queue', texts)).toEqual(['reopenPayments', 'store_payments', 'take_tabs'])
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

/** The imports between the folders of one room. What lies beside them wires them, and is left out. */
function folderEdges(all: readonly Import[]): Import[] {
  const shelved = ['packages/ledger', 'keeper', 'api', 'apps/devstack', 'tools']
  const shelvedRoomOf = (file: string) => shelved.find((room) => file.startsWith(`${room}/`))
  const folderOf = (file: string) => {
    const room = shelvedRoomOf(file)
    const path = file.slice((room?.length ?? 0) + 1).split('/')
    if (room === undefined || path.length < 2) return undefined
    const depth = room === 'api' && path[0] === 'payments' ? 2 : 1
    return [room, ...path.slice(0, Math.min(depth, path.length - 1))].join('/')
  }
  const edges = all.flatMap(({ from, to }): Import[] => {
    const [a, b] = [folderOf(from), folderOf(to)]
    return a && b && a !== b && shelvedRoomOf(from) === shelvedRoomOf(to) ? [{ from: a, to: b }] : []
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

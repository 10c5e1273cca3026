import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { formatPicoUsd } from '@tollkeeper/chain/priceAdvice'
import { gasCostOfPayment, typicalBatchGas } from '@tollkeeper/chain/typicalGas'
import { errorCodes } from '@tollkeeper/sdk/protocol/errors'
import { splitAnyPrice, splitPrice } from '@tollkeeper/sdk/protocol/tier'
import { describe, expect, test } from 'vitest'
import { createProgram } from '../../apps/cli/program.ts'
import packageJson from '../../package.json' with { type: 'json' }
import tabGas from '../../snapshots/tabs.json' with { type: 'json' }
import { root } from '../support/processes.ts'

type Command = ReturnType<typeof createProgram>

const read = (path: string) => readFileSync(join(root, path), 'utf8')
const pages = readdirSync(join(root, 'docs'))
  .filter((name) => name.endsWith('.md') && name !== 'README.md')
  .map((name) => `docs/${name}`)
const written = ['README.md', 'CONTRIBUTING.md', 'docs/README.md', 'examples/README.md', ...pages]

const readme = read('README.md')
const comparison = read('docs/comparison.md')

/** Returns the cells of each row, except the head, of the Markdown table that follows a line. */
function tableAfter(text: string, line: string): string[][] {
  const [, rest] = text.split(`${line}\n`)
  if (rest === undefined) throw new Error(`no line ${line}`)
  const [rows = ''] = rest.trimStart().split('\n\n')
  return rows
    .split('\n')
    .slice(2)
    .map((row) =>
      row
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    )
}

test('behavior: docs/README.md lists every document once', () => {
  const listed = [...read('docs/README.md').matchAll(/^\| \[[^\]]+\]\(([^)]+)\)/gm)].map(([, path]) => path)
  // The folder of runbooks has one row in the list.
  expect(listed.map((path) => `docs/${path}`).sort()).toEqual([...pages, 'docs/runbooks'].sort())
})

test('behavior: the README explains costs, reasons, selling with Express, stopping and auditing in at most 950 words', () => {
  // Words in tables count; code, HTML comments and the separator rows of tables don't.
  const prose = readme.replaceAll(/^```.*?^```|<!--.*?-->|^\|[-| :]+\|$/gms, '')
  expect(prose.match(/[\p{L}\p{N}][^\s|]*/gu)?.length).toBeLessThan(950)
  for (const heading of ['Sell', 'Buy', 'Quick start', 'Why Tollkeeper', 'What it costs', 'Stop it'])
    expect(readme).toContain(`\n## ${heading}\n`)
  const [firstScreens = ''] = readme.split('## Quick start')
  for (const shown of ['```ts express', '(docs/audit-and-bookkeeping.md)', '(docs/comparison.md)'])
    expect(firstScreens).toContain(shown)
  expect(read('docs/run-a-gateway.md')).toMatch(/^## Stop$[\s\S]*tollkeeper --env \.env sales stop/m)
})

test('behavior: the README names an existing test for each guarantee', () => {
  const guarantees = tableAfter(
    readme,
    '<!-- guarantees: test/house/docs.test.ts checks that the tests exist -->',
  )
  expect(guarantees).toHaveLength(3)
  for (const [guarantee, tests = ''] of guarantees) {
    const files = [...tests.matchAll(/`([\w/.-]+\.test\.ts)`/g)].map(([, file]) => file as string)
    expect([guarantee, files.length > 0]).toEqual([guarantee, true])
    for (const file of files) expect(read(file)).toMatch(/\btest(\.each)?\b/)
  }
})

test('behavior: each test that a document names exists', () => {
  const named = written.flatMap((page) =>
    [...read(page).matchAll(/`([\w/.-]+\.(?:test\.ts|t\.sol))`/g)].map(([, file]) => [page, file as string]),
  )
  expect(named.length).toBeGreaterThan(60)
  expect(named.filter(([, file]) => !existsSync(join(root, file as string)))).toEqual([])
})

describe('commands', () => {
  /** Everything after `tollkeeper` in code, up to the end of the shell command. */
  const shown = written.flatMap((page) =>
    [...read(page).matchAll(/npx --no-install tollkeeper ([^\n`|#>]+)/g)].map(([, words = '']) => ({
      page,
      words: (words.match(/"[^"]*"|'[^']*'|\S+/g) ?? []).map((word) => word.replace(/^\.$|[,;:)]+$/g, '')),
    })),
  )

  test('behavior: each command in a document exists, with each of its flags', () => {
    expect(shown.length).toBeGreaterThan(70)
    const faults = shown.flatMap(({ page, words }) => {
      const wrong = findFault(words)
      return wrong === undefined ? [] : [`${page}: tollkeeper ${words.join(' ')}: ${wrong}`]
    })
    expect(faults).toEqual([])
  })

  test.each([
    ['a command', ['provder', 'create']],
    ['a subcommand', ['provider', 'creat']],
    ['a flag', ['audit', '--reciepts', 'x']],
  ])('behavior: finds %s that does not exist', (_, words) => {
    expect(findFault(words)).toBeDefined()
  })

  function findFault(words: readonly string[]): string | undefined {
    let command = createProgram()
    const own = words.includes('--') ? words.slice(0, words.indexOf('--')) : words
    const flags: string[] = []
    const isFlag = (word: string) => /^--?\w/.test(word)
    for (let index = 0; index < own.length; index++) {
      const word = own[index] as string
      if (isFlag(word)) {
        flags.push(word.split('=')[0] as string)
        // An option of the program itself precedes the command, and the next word is the option's value.
        if (word === '--env') index++
        continue
      }
      // The word after a flag is its value.
      if (flags.length > 0 && command !== undefined && isFlag(own[index - 1] ?? '')) continue
      const next = command.commands.find((one) => one.name() === word)
      if (next) command = next
      // A placeholder, such as `<command>`.
      else if (word.startsWith('<')) return undefined
      else if (command.parent === null) return `no command ${word}`
      else if (command.commands.length > 0 && !/[…$]|^0x/.test(word)) return `no command ${word}`
    }
    const known = new Set([
      '--help',
      '--version',
      ...flagsOf(createProgram(), false),
      ...flagsOf(command, true),
    ])
    const unknown = flags.find((flag) => !known.has(flag))
    return unknown && `no flag ${unknown}`
  }

  /** Returns the flags of a command; for a group also those of its commands, one of which is the default. */
  function flagsOf(command: Command, deep: boolean): string[] {
    const own = command.options.flatMap(({ long, short }) => [long, short].filter((flag) => flag != null))
    return deep ? [...own, ...command.commands.flatMap((one) => flagsOf(one, true))] : own
  }

  test('behavior: each npm script that a document names exists', () => {
    const named = written.flatMap((page) =>
      [...read(page).matchAll(/(?<!p)npm run (?:--silent )?([a-z][\w:]*)/g)].map(([, name]) => [page, name]),
    )
    expect(named.length).toBeGreaterThan(60)
    expect(named.filter(([, name]) => !((name as string) in packageJson.scripts))).toEqual([])
  })
})

test('behavior: the gateway or the client throws each code in docs/troubleshooting.md', () => {
  const text = read('docs/troubleshooting.md')
  const codes = [...text.matchAll(/`([a-z]+(?:_[a-z]+)+)`/g)].map(([, code]) => code as string)
  const known = new Set([
    ...Object.keys(errorCodes),
    ...[...read('sdk/README.md').matchAll(/`([a-z]+(?:_[a-z]+)+)`/g)].map(([, code]) => code as string),
    // These aren't errors: fields, reasons of `held_by`, and settings of nginx and ours.
    ...['held_by', 'proxy_buffer_size', 'gas_price', 'gas_cost', 'gas_budget', 'gas_allowance'],
    // Errors at the start of a process, and errors of other x402 sellers.
    ...['tab_store_behind', 'payment_refused'],
  ])
  expect(codes.length).toBeGreaterThan(40)
  expect(codes.filter((code) => !known.has(code))).toEqual([])
})

describe('links', () => {
  const runbooks = readdirSync(join(root, 'docs/runbooks')).map((name) => `docs/runbooks/${name}`)
  const linking = [...written, ...runbooks, 'CHANGELOG.md', 'SECURITY.md', 'sdk/README.md']

  /** Returns the anchors that GitHub gives a page's headings. A repeated heading has a number. */
  function anchorsOf(path: string): Set<string> {
    const seen = new Map<string, number>()
    const headings = read(path)
      .replaceAll(/^```.*?^```/gms, '')
      .matchAll(/^#+ (.*)$/gm)
    return new Set(
      [...headings].map(([, heading = '']) => {
        const words = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
        const anchor = words.replaceAll(/[^\p{L}\p{N}\p{M} _-]/gu, '').replaceAll(' ', '-')
        const times = seen.get(anchor) ?? 0
        seen.set(anchor, times + 1)
        return times === 0 ? anchor : `${anchor}-${times}`
      }),
    )
  }

  const linksOf = (text: string) =>
    [...text.replaceAll(/^```.*?^```/gms, '').matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link)

  test.each(linking)('of %s lead to existing files and headings', (page) => {
    const broken = linksOf(read(page))
      .filter((link) => !/^(https?|mailto):/.test(link))
      .filter((link) => {
        const [path = '', anchor] = link.split('#')
        const target = path === '' ? page : join(dirname(page), path)
        if (!existsSync(join(root, target))) return true
        return anchor !== undefined && target.endsWith('.md') && !anchorsOf(target).has(anchor)
      })
    expect(broken).toEqual([])
  })

  test('to a missing heading are found', () => {
    expect(anchorsOf('docs/provider-views.md')).toContain('receipts-in-bulk')
    expect(anchorsOf('docs/provider-views.md')).not.toContain('receipts in bulk')
  })
})

test('docs/provider-views.md describes each provider view once', () => {
  const text = `${read('docs/provider-views.md')}\n${read('docs/bookkeeping.md')}`
  const views = readdirSync(join(root, 'api/views'))
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .map((name) => read(`api/views/${name}`))
    .filter((code) => code.includes('...providerViews'))
    .flatMap((code) => [...code.matchAll(/'(\/providers\/\{id\}\/[^']+)'/g)].map(([, path = '']) => path))
  expect(views.length).toBeGreaterThan(15)
  for (const path of views) {
    const opened = ['GET', 'POST'].flatMap((method) => [`\`${method} ${path}\``, `\`${method} ${path}?`])
    const described = opened.reduce((sum, words) => sum + text.split(words).length - 1, 0)
    expect([path, described]).toEqual([path, 1])
  }
})

describe('figures', () => {
  const usdPerGas = (0.002 * 2_500) / 1e9

  const perRequest = {
    tabOneSeller: Number(tabGas['a request, 1 provider x 10 requests']).toLocaleString('en-US'),
    tab: tabGas['a request, 20 providers x 10 requests'],
    tabOfFifty: tabGas['a request, 20 providers x 50 requests'],
  }

  test('behavior: the README states the costs of docs/costs.md, at the gas price that the README names', () => {
    const rows = tableAfter(readme, '<!-- costs: computed by test/house/docs.test.ts -->')
    const prices = { expected: 2_000_000n, dataFee: 0n, usdPerToken: 2_500_000_000n }
    const computed = [
      ['two_signatures', 1, 1],
      ['two_signatures', 100, 1],
      ['one_signature', 100, 1],
      ['tab', 1, 10],
      ['tab', 1, 1_000],
    ] as const
    expect(rows.map(([, ...cells]) => cells)).toEqual(
      computed.map(([kind, sharing, requests]) => [
        (typicalBatchGas(kind, sharing) / BigInt(sharing * requests)).toLocaleString('en'),
        formatPicoUsd(gasCostOfPayment(kind, sharing, prices, requests)),
      ]),
    )
    expect(readme).toContain("at 0.002 gwei (Base's lowest gas price) and 2,500 USD per ETH")
    // The sentence below the table.
    const { feeAmount } = splitPrice(10_000n)
    expect(readme).toContain(`costs more gas than its fee of ${Number(feeAmount) / 1e6} USDC`)
    const [costAlone, costInBatch] = rows.map(([, , usd]) => Number(usd))
    expect(costAlone).toBeGreaterThan(Number(feeAmount) / 1e6)
    expect(costInBatch).toBeLessThan(Number(feeAmount) / 1e6)
  })

  test('behavior: README and FAQ state the fees of the tiers', () => {
    const rows = tableAfter(readme, 'this part of the whole price (with `FEE_SCHEDULE=flat`, 2%):')
    const prices = [9_000n, 10_000n, 1_000_000n, 10_000_000n]
    const shown = prices.map((price) => {
      const next = splitPrice(price).feeAmount
      // From 1 USDC on, the fee has a fixed part of 0.05 USDC besides the percentage.
      const fixed = price >= 1_000_000n ? 50_000n : 0n
      const percent = Number(((next - fixed) * 1_000n) / price) / 10
      return fixed > 0n ? `${percent}% + ${Number(fixed) / 1e6} USDC` : `${percent}%`
    })
    expect(rows.map(([, fee]) => fee)).toEqual(shown)
    expect(rows.map(([from]) => from)).toEqual(['below 0.01', 'from 0.01', 'from 1', 'from 10'])
    const [low, middle, high, highest] = shown
    expect(read('docs/faq.md')).toContain(
      `${low} below 0.01 USDC, ${middle} from 0.01, ${high} from 1, ${highest} from 10`,
    )
  })

  test('behavior: docs/comparison.md has the figures of the snapshots, docs/x402.md and docs/performance.md', () => {
    const rows = tableAfter(
      comparison,
      '<!-- comparison: computed by test/house/docs.test.ts from snapshots/ -->',
    )
    const { tab, tabOfFifty, tabOneSeller } = perRequest
    expect(rows.map(([, gas]) => gas)).toEqual([tab, tabOfFifty, tabOneSeller])
    const [, ran = ''] = /<!-- strangers: .*?-->(.*?)<!-- \/strangers -->/s.exec(read('docs/x402.md')) ?? []
    const programs = [...ran.matchAll(/^\| `/gm)].length
    expect(comparison).toContain(`[${programs} programs were run]`)
    const performance = read('docs/performance.md')
    const measured = tableAfter(comparison, '<!-- measured: the figures of docs/performance.md -->')
    const figureOf = (what: string) =>
      performance.match(new RegExp(`^\\| ${what} +\\|[^|]*\\| \\**([\\d.]+)`, 'm'))?.[1]
    expect(measured.map(([, ours = '']) => /[\d.]+/.exec(ours)?.[0])).toEqual(
      [
        'verifications ÷ reference',
        "facilitator's gas per payment ÷ reference",
        'settled by `/settle` ÷ reference',
      ].map(figureOf),
    )
  })

  test('behavior: docs/comparison.md cites exactly its listed sources', () => {
    const [cells = '', sources = ''] = comparison.split('## Sources')
    const cited = new Set([...cells.matchAll(/\[(\d+)\](?!\()/g)].map(([, number]) => number))
    const listed = [...sources.matchAll(/^\| (\d+) .*<https:/gm)].map(([, number]) => number)
    expect([...cited].sort()).toEqual(listed)
    expect(cells).toMatch(/read in \w+ \d{4}/)
  })

  test('behavior: the rewards and costs in docs/run-a-keeper.md follow from tiers and snapshots', () => {
    const text = read('docs/run-a-keeper.md')
    const rows = tableAfter(
      text,
      '<!-- rewards: computed by test/house/docs.test.ts from snapshots/tabs.json and the fee tiers -->',
    )
    const gas = [
      Number(tabGas['1 payer, 1 provider x 10 requests']),
      Number(tabGas['100 payers, 1 provider x 10 requests']) / 100,
      Number(tabGas['100 payers, 20 providers x 10 requests']) / 100,
    ]
    /** The reward's share of a tab: a tenth of the fee (api/config.ts). */
    const rewardOf = (price: bigint) => Number(splitAnyPrice(price).feeAmount) / Number(price) / 10
    expect([rewardOf(1_000n), rewardOf(10_000n)]).toEqual([0.01, 0.005])
    expect(read('api/config.ts')).toMatch(/tabRewardShare = 1_000\b/)
    expect(rows.map((row) => row.slice(1))).toEqual(
      gas.map((one) => {
        const usd = one * usdPerGas
        const from = (price: bigint) => `${(usd / rewardOf(price)).toFixed(4)} USDC`
        return [Math.floor(one).toLocaleString('en-US'), usd.toFixed(6), from(1_000n), from(10_000n)]
      }),
    )
    const [, rewards, spent] = /rewards ([\d.]+) USDC, gas ([\d.]+) USD/.exec(text) ?? []
    expect([rewards, spent]).toEqual([
      (1_000 * rewardOf(1_000n)).toFixed(2),
      (1_000 * (gas[2] as number) * usdPerGas).toFixed(2),
    ])
  })
})

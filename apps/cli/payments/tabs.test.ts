import { beforeEach, expect, test } from 'vitest'
import { useCliGateway } from '../../../test/support/cliGateway.ts'
import { openShop, type Shop } from '../../../test/support/gateway.ts'
import { openTab } from '../../../test/support/tabBuyer.ts'
import { openTabUpkeep } from '../../../test/support/tabUpkeep.ts'

const cli = useCliGateway()
let shop: Shop

beforeEach(async () => {
  shop = await openShop(cli.gateway.app)
})

const run = (...args: string[]) =>
  cli.run(['tabs', 'list', ...args], {
    TOLLKEEPER_GATEWAY_URL: cli.url,
    TOLLKEEPER_API_KEY: shop.key,
    TOLLKEEPER_PROVIDER_ID: shop.providerId,
  })

/** Buys on a new tab. @returns its id. */
async function buyOnTab(requests: number): Promise<string> {
  const tab = openTab(cli.gateway, await cli.gateway.buyer(5_000_000n))
  for (let i = 0; i < requests; i++) expect((await tab.buy(shop)).status).toBe(200)
  return tab.tabId
}

/** Runs `tabs list --json`. @returns the ids and states of the tabs, and the cursor of the next page. */
async function list(...args: string[]) {
  const { status, stdout, stderr } = await run(...args, '--json')
  expect([status, stderr]).toEqual([0, ''])
  const { tabs, cursor } = JSON.parse(stdout)
  return { tabs: tabs.map((tab: { tabId: string; state: string }) => [tab.tabId, tab.state]), cursor }
}

test('lists tabs by state and in pages, with open tabs before closed tabs', async () => {
  const closed = await buyOnTab(2)
  // Runs the upkeep ten minutes later, so that it closes the idle tab.
  await openTabUpkeep(cli.gateway, Date.now() + 600_000).closeAndTake()
  const open = await buyOnTab(3)

  expect(await list()).toEqual({
    tabs: [
      [open, 'open'],
      [closed, 'closed'],
    ],
    cursor: null,
  })
  expect((await list('--open')).tabs).toEqual([[open, 'open']])
  expect((await list('--state', 'open')).tabs).toEqual([[open, 'open']])
  expect((await list('--state', 'closed')).tabs).toEqual([[closed, 'closed']])

  const first = await list('--limit', '1')
  expect(first.tabs).toEqual([[open, 'open']])
  expect((await list('--limit', '1', '--cursor', first.cursor)).tabs).toEqual([[closed, 'closed']])

  const { stdout, stderr } = await run('--limit', '1')
  const [header = '', row = ''] = stdout.split('\n')
  expect(header.split(/ {2,}/)).toEqual([
    ...[
      'opened',
      'tab',
      'state',
      'network',
      'payer',
      'requests',
      'USDC',
      'net USDC',
      'signed USDC',
      'closes',
    ],
  ])
  // The charged amount minus the fee of 5%, and the signed amount.
  expect(row).toMatch(
    new RegExp(`${open} +open +localhost +0x\\w+…\\w+ +3 +0\\.15\\d* +0\\.1425\\d* +0\\.15\\d* +20`),
  )
  expect(stderr).toBe(`More: the same command with --cursor ${first.cursor}\n`)
})

test.each([
  [[], 'There are no tabs. A tab appears after a buyer’s first request on it'],
  [['--open'], 'No tab is open. `tollkeeper tabs list` also shows closed tabs'],
  [['--state', 'open'], 'No tab is open. `tollkeeper tabs list` also shows closed tabs'],
  [['--state', 'closed'], 'No tab is closed. `tollkeeper tabs list` also shows open tabs'],
])('prints a note if there are no tabs: %j', async (args, note) => {
  const { status, stdout, stderr } = await run(...args)
  expect([status, stdout, stderr]).toEqual([0, '', `${note}\n`])
})

test.each([
  [['--open', '--state', 'closed'], /--open.*--state/],
  [['--cursor', 'x'], /^tollkeeper: --cursor: .*\(invalid_cursor\)/],
  [['--limit', '101'], /^tollkeeper: --limit: /],
])('rejects %j with exit status 2 and names the flag', async (args, message) => {
  const { status, stderr } = await run(...args)
  expect([status, stderr]).toEqual([2, expect.stringMatching(message)])
})

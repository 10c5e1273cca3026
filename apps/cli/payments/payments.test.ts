import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { beforeEach, describe, expect, test } from 'vitest'
import { cliPath } from '../../../test/support/cli.ts'
import { useCliGateway } from '../../../test/support/cliGateway.ts'
import { openShop, pay, type Shop, settleDirectly } from '../../../test/support/gateway.ts'
import { type SeedPayment, seedPayment, seedSettlement } from '../../../test/support/seedPayments.ts'
import { startWebhookReceiver } from '../../../test/support/webhookReceiver.ts'
import type { PaymentChange } from './watch.ts'
import { watchPayments } from './watch.ts'

const cli = useCliGateway()
let shop: Shop

beforeEach(async () => {
  shop = await openShop(cli.gateway.app)
})

const env = () => ({
  TOLLKEEPER_GATEWAY_URL: cli.url,
  TOLLKEEPER_API_KEY: shop.key,
  TOLLKEEPER_PROVIDER_ID: shop.providerId,
})
const flags = () => ({ gateway: cli.url, apiKey: shop.key, provider: shop.providerId })
const run = (...args: string[]) => cli.run(args, env())

async function json(...args: string[]) {
  const { status, stdout, stderr } = await run(...args, '--json')
  expect([args, status, stderr]).toEqual([args, 0, ''])
  return JSON.parse(stdout)
}

const seed = (options: Partial<SeedPayment> = {}) =>
  seedPayment(cli.gateway.database, { provider: { ...shop, endpointIds: [shop.endpointId] }, ...options })
const settle = (payment: Awaited<ReturnType<typeof seed>>) => seedSettlement(cli.gateway.database, payment)

describe('payments list', () => {
  test('lists payments with filters, newest first, in pages', async () => {
    const time = (hours: number) => new Date(Date.now() - hours * 3_600_000)
    const old = await seed({ acceptedAt: time(3) })
    const settled = await seed({ acceptedAt: time(2) })
    const txHash = await settle(settled)
    const large = await seed({ acceptedAt: time(1), providerAmount: 2_000_000n })
    const ids = async (...args: string[]) =>
      (await json('payments', 'list', ...args)).payments.map(({ paymentId }: PaymentChange) => paymentId)

    expect(await ids()).toEqual([large, settled, old].map(({ paymentId }) => paymentId))
    expect(await ids('--status', 'settled')).toEqual([settled.paymentId])
    expect(await ids('--tx', txHash)).toEqual([settled.paymentId])
    expect(await ids('--payer', old.payer)).toEqual([old.paymentId])
    expect(await ids('--min', '1')).toEqual([large.paymentId])
    expect(await ids('--max', '1')).toEqual([settled, old].map(({ paymentId }) => paymentId))
    expect(await ids('--since', time(2.5).toISOString(), '--until', time(1.5).toISOString())).toEqual([
      settled.paymentId,
    ])
    expect(await ids('--endpoint', shop.endpointId, '--network', 'localhost')).toHaveLength(3)

    const first = await json('payments', 'list', '--limit', '2')
    expect(first.payments).toHaveLength(2)
    expect(await ids('--limit', '2', '--cursor', first.cursor)).toEqual([old.paymentId])
    const page = await run('payments', '--limit', '2')
    expect(page.stdout.split('\n')[0]).toMatch(/^accepted +payment +status +USDC/)
    expect(page.stdout).toContain(formatUsdc(2_002_500n))
    expect(page.stderr).toBe(`More: the same command with --cursor ${first.cursor}\n`)
    const none = await run('payments', 'list', '--status', 'voided')
    expect([none.status, none.stdout, none.stderr]).toEqual([
      0,
      '',
      'No payment matches these filters. Remove a filter to see more payments\n',
    ])
  })

  test('prints all pages as CSV', async () => {
    for (let i = 0; i < 3; i++) await seed()
    const { status, stdout } = await run('payments', 'list', '--limit', '1', '--csv')
    const [header, ...rows] = stdout.trimEnd().split('\r\n')
    expect([status, header, rows.length]).toEqual([0, expect.stringMatching(/^kind,payment_id,/), 3])
  })

  test.each([
    [
      ['--since', '2026-02-30'],
      /^tollkeeper: --since: expected a day like .*, got "2026-02-30" \(invalid_flags\)/,
    ],
    [['--limit', '101'], /--limit: expected a whole number from 1 to 100, got "101"/],
    [['--status', 'paid'], /--status: expected one of verified, .*, got "paid"/],
    [['--payer', '0x1'], /--payer: expected an address/],
    // Errors that the gateway finds also name the flag.
    [['--endpoint', 'nonsense'], /^tollkeeper: --endpoint: .*\(invalid_\w+\)/],
    [
      ['--network', 'base'],
      /^tollkeeper: --network: base is not served by this gateway \(network_not_served\)/,
    ],
    [['--cursor', 'nonsense'], /^tollkeeper: --cursor: .*\(invalid_cursor\)/],
  ])('names the flag that is wrong: %j', async (args, message) => {
    const { status, stdout, stderr } = await run('payments', 'list', ...args)
    expect([status, stdout, stderr]).toEqual([2, '', expect.stringMatching(message)])
  })
})

describe('payments show', () => {
  test('shows a payment’s status in words, what happens next, the transaction and the receipt', async () => {
    const { paymentId, payloads } = await pay(cli.gateway, shop)
    const waiting = await json('payments', 'show', paymentId)
    expect(waiting).toMatchObject({
      paymentId,
      payment_status: 'verified',
      meaning: 'accepted; not settled yet',
      next: expect.stringMatching(/^it settles with the next batch, expected at \d{4}-/),
      receipt: expect.stringMatching(/^eyJ/),
    })
    let hash = ''
    for (const payload of payloads) hash = (await settleDirectly(cli.gateway, payload)).hash
    const { status, stdout } = await run('payments', 'show', paymentId)
    expect([status, hash]).toEqual([0, expect.stringMatching(/^0x/)])
    expect(stdout).toMatch(new RegExp(`^${paymentId}: settled; all of its USDC arrived on chain\n`))
    expect(stdout).toMatch(/\nNet 0\.047500 USDC to 0x\w{40}, fee 0\.002500 USDC\n/)
    expect(stdout).toContain(`Next: nothing. Refund it with \`tollkeeper provider refund ${paymentId}\``)
    expect(stdout).toMatch(/\nTransaction: 0x[0-9a-f]{64}\nReceipt: eyJ/)
  })

  test('rejects an invalid id and an unknown id', async () => {
    expect((await run('payments', 'show', 'x')).stderr).toMatch(
      /^tollkeeper: <payment>: expected a payment id, pay_…, got "x"/,
    )
    expect((await run('payments', 'show', `pay_${'0'.repeat(32)}`)).stderr).toMatch(/\(unknown_payment\)/)
  })
})

/** A list of changes in the order in which they happen. */
function createFeed() {
  const changes: PaymentChange[] = []
  let wake = () => {}
  return {
    push(change: PaymentChange) {
      changes.push(change)
      wake()
    },
    async next(): Promise<string> {
      while (changes.length === 0) {
        const { promise, resolve } = Promise.withResolvers<void>()
        wake = resolve
        await promise
      }
      const { paymentId, previous_status: before, payment_status: status } = changes.shift() as PaymentChange
      return `${paymentId} ${before} ${status}`
    },
  }
}

describe('payments watch', () => {
  /** Starts watching, and waits until the existing payments are known. */
  async function watch(more: object = {}) {
    const feed = createFeed()
    const lines: string[] = []
    let onLine = () => {}
    const stop = new AbortController()
    const ready = Promise.withResolvers<void>()
    const ended = watchPayments(
      { ...flags(), ...more },
      {
        signal: stop.signal,
        pollMs: 20,
        onChange: feed.push,
        onReady: ready.resolve,
        onNote: (line) => {
          lines.push(line)
          onLine()
        },
      },
    )
    await Promise.race([ready.promise, ended])
    return {
      next: feed.next,
      async note(pattern: RegExp) {
        while (!lines.some((line) => pattern.test(line))) {
          const { promise, resolve } = Promise.withResolvers<void>()
          onLine = resolve
          await promise
        }
      },
      async end() {
        stop.abort()
        await ended
      },
    }
  }

  test('reports new payments, and changes of payments that already existed', async () => {
    const before = await seed()
    await settle(await seed())
    const watching = await watch()
    const first = await seed()
    expect(await watching.next()).toBe(`${first.paymentId} null verified`)
    await settle(before)
    expect(await watching.next()).toBe(`${before.paymentId} verified settled`)
    await settle(first)
    expect(await watching.next()).toBe(`${first.paymentId} verified settled`)
    await watching.end()
  })

  test('reports a payment that becomes visible only after newer payments, such as a payment on a tab', async () => {
    await seed()
    const watching = await watch()
    const late = await seed({ acceptedAt: new Date(Date.now() - 5 * 3_600_000) })
    expect(await watching.next()).toBe(`${late.paymentId} null verified`)
    await settle(late)
    expect(await watching.next()).toBe(`${late.paymentId} verified settled`)
    await watching.end()
  })

  test('reports only payments with the given status and endpoint', async () => {
    const watching = await watch({ status: 'settled', endpoint: shop.endpointId })
    const payment = await seed()
    await settle(payment)
    expect(await watching.next()).toMatch(new RegExp(`^${payment.paymentId} (null|verified) settled$`))
    await watching.end()
  })

  test('continues after the gateway was unreachable, without missing a change', async () => {
    const payment = await seed()
    const watching = await watch()
    await cli.stop()
    await watching.note(/can't be reached.*Retrying/)
    await settle(payment)
    const another = await seed()
    await cli.restart()
    await watching.note(/responding again/)
    expect([await watching.next(), await watching.next()]).toEqual([
      `${payment.paymentId} verified settled`,
      `${another.paymentId} null verified`,
    ])
    await watching.end()
  })

  test('prints JSON lines, and ends with 0 on Ctrl-C', async () => {
    const child = spawn(process.execPath, [cliPath, 'payments', 'watch', '--json'], {
      env: {
        PATH: process.env.PATH,
        XDG_CONFIG_HOME: cli.folder,
        NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
        ...env(),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const closed = once(child, 'close')
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
    const notes = createInterface(child.stderr)[Symbol.asyncIterator]()
    expect((await notes.next()).value).toBe('Watching for payments. Ctrl-C ends it')
    const { paymentId } = await seed()
    const { value = '' } = await lines.next()
    expect(JSON.parse(value)).toMatchObject({ paymentId, payment_status: 'verified', previous_status: null })
    child.kill('SIGINT')
    const [status, signal] = await closed
    expect([status, signal]).toEqual([0, null])
  })

  test('fails immediately if the key is wrong', async () => {
    const options = { onChange: () => {}, onNote: () => {}, signal: new AbortController().signal }
    await expect(watchPayments({ ...flags(), apiKey: 'tk_wrong' }, options)).rejects.toMatchObject({
      code: 'unauthorized',
    })
  })
})

describe('statement', () => {
  test('prints the sums of a month, and its lines as CSV', async () => {
    await settle(await seed())
    await seed()
    const month = new Date().toISOString().slice(0, 7)
    expect(await json('statement')).toMatchObject({
      month,
      networks: [{ network: 'localhost', payments: 2, settledPayments: 1, gross_usdc: '0.100000' }],
    })
    const { stdout, stderr } = await run('statement', '--month', month)
    expect(stdout).toMatch(
      /^network +payments +gross USDC .*\nlocalhost \(test\) +2 +0\.100000 +0\.005000 +0\.095000 +0\.047500/,
    )
    expect(stderr).toContain(`tollkeeper statement --month ${month} --csv`)
    expect((await run('statement', '--csv')).stdout.trimEnd().split('\r\n')).toHaveLength(3)
    expect((await run('statement', '--month', '2020-01')).stderr).toBe(
      'No payment was accepted in 2020-01. Choose another month with --month\n',
    )
    expect((await run('statement', '--month', '2026-13')).stderr).toMatch(
      /--month: expected a month like 2026-11, got "2026-13"/,
    )
    expect((await run('statement', '--month', '2199-01')).stderr).toMatch(
      /has not begun \(invalid_date_range\)/,
    )
  })
})

describe('webhook test', () => {
  const register = async (url: string) => (await json('provider', 'webhook', '--url', url)).webhookId

  test('sends a test event to each webhook, or only to the given webhook, and exits with 1 if a delivery fails', async () => {
    expect((await run('webhook', 'test')).stderr).toMatch(/Register one: .*\(unknown_webhook\)/)
    await using good = await startWebhookReceiver()
    await using bad = await startWebhookReceiver((response) => response.writeHead(500).end())
    const [one, other] = [await register(good.url), await register(bad.url)]
    const all = await run('webhook', 'test')
    expect([all.status, all.stdout]).toEqual([
      1,
      expect.stringMatching(
        new RegExp(
          `^${one} \\S+: delivered, HTTP 204 in \\d+ ms\n${other} .*not delivered, HTTP 500.*\\(http_500\\)`,
        ),
      ),
    ])
    expect(await json('webhook', 'test', '--webhook', one)).toEqual({
      tests: [
        { webhookId: one, url: good.url, delivered: true, status: 204, durationMs: expect.any(Number) },
      ],
    })
    expect([good.received.length, bad.received.length]).toEqual([2, 1])
    expect((await run('webhook', 'test', '--webhook', 'wh_x')).stderr).toMatch(
      /--webhook: there is no webhook "wh_x"/,
    )
  })
})

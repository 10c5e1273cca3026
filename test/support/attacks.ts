import { request as httpRequest } from 'node:http'
import { isDeepStrictEqual } from 'node:util'
import { parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { networkByName } from '@tollkeeper/sdk/protocol/networks'
import { encodePaymentHeader, type PaymentRequired } from '@tollkeeper/sdk/protocol/x402'
import { x402Client } from '@x402/core/client'
import { ExactEvmScheme } from '@x402/evm/exact/client'
import { createPublicClient, type Hex, http, type PrivateKeyAccount, parseAbiItem } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import type { LocalChain } from '../../apps/devstack/chain/startLocalChain.ts'
import { cancelDirectly, randomHex, readBalance, sendDirectly, signAuthorization, tokenOf } from './usdc.ts'

// The attacks on 402 systems in arXiv 2605.11781 (authorization, binding, replay, web-layer handling) and 2605.30998
// (cross-resource substitution, duplicate settlement, overdraft, denial of settlement), as a buyer can carry them out against any
// seller of the x402 standard, version 2. The result of an attack is what these papers call the leak: the number of times that a
// handler ran without anyone paying for it.

/** A seller's protected resource. */
export type AttackedShop = {
  url: string
  /** Number of times that its handlers ran. */
  served: () => number
  /** From now on, the handler runs this task before it answers. */
  whileServing: (task: () => Promise<unknown>) => void
}

/** One seller's system, with any number of wallets for its buyers. */
export type Target = {
  chain: LocalChain
  /** A shop whose resource costs 0.01 USDC. `otherUrl` is another resource of the seller at the same price. */
  cheap: AttackedShop & { otherUrl: string }
  /** A shop whose resource costs 0.50 USDC. */
  dear: AttackedShop
  /** The shop with the highest price, 12 USDC. */
  dearest: AttackedShop
}

/** `due`: number of handler runs that someone pays or has paid for. */
export type Outcome = { statuses: number[]; served: number; due: number }

export type Attack = {
  kind:
    | 'cross-resource substitution'
    | 'duplicate settlement'
    | 'replay'
    | 'binding'
    | 'overdraft'
    | 'denial of settlement'
    | 'web layer'
  name: string
  /** The statuses that our own middleware and gateway return, sorted. */
  answers: number[]
  /** Maximum number of unpaid handler runs that even our system allows, and the reason. */
  ourLeak?: { most: number; because: string }
  run: (target: Target) => Promise<Outcome>
}

type Payment = {
  x402Version: number
  accepted: Record<string, unknown> & { extra: Record<string, unknown> }
  payload: { signature: string; authorization: Record<string, string> }
}
type Headers = Record<string, string | string[]>
type Attempt = [url: string, headers?: Headers, method?: string]

export async function newAccount({ chain }: Pick<Target, 'chain'>, usdc = '2'): Promise<PrivateKeyAccount> {
  const account = privateKeyToAccount(generatePrivateKey())
  if (usdc !== '0') await chain.mintUsdc([account.address], parseUsdc(usdc))
  return account
}

export async function offerOf(url: string): Promise<PaymentRequired> {
  const header = (await fetch(url)).headers.get('payment-required') ?? ''
  return JSON.parse(Buffer.from(header, 'base64').toString()) as PaymentRequired
}

/** Signs an offer as the reference client does. `change` returns the offer after the thief's changes. */
export async function sign(
  account: PrivateKeyAccount,
  offer: PaymentRequired,
  change: object = {},
): Promise<Payment> {
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(account)).setSpendControls(false)
  const changed = { ...offer, accepts: [{ ...offer.accepts[0], ...change }] }
  return (await client.createPaymentPayload(changed as never)) as never
}

export const header = (payment: object): Headers => ({ 'PAYMENT-SIGNATURE': encodePaymentHeader(payment) })

/** Returns the header with the payment's authorization in x402 v1, which carries no challenge. */
export const asV1 = ({ payload }: Payment): Headers => ({
  'X-PAYMENT': encodePaymentHeader({ x402Version: 1, scheme: 'exact', network: 'localhost', payload }),
})

/** Sends headers exactly as given; `fetch` would join repeated ones. */
function send([url, headers = {}, method = 'GET']: Attempt): Promise<number> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url)
    // Use the path as written; `URL` would normalize it.
    const path = url.slice(url.indexOf('/', 'http://'.length))
    httpRequest({ hostname, port, path, headers, method }, (response) => {
      response.resume()
      response.on('end', () => resolve(response.statusCode ?? 0))
    })
      .on('error', reject)
      .end()
  })
}

/** Sends all requests at the same time, and returns their statuses and the number of handler runs. */
export async function attack(
  { cheap, dear, dearest }: Target,
  attempts: Attempt[],
  due = 0,
): Promise<Outcome> {
  const count = () => cheap.served() + dear.served() + dearest.served()
  const before = count()
  const statuses = await Promise.all(attempts.map(send))
  return { statuses: statuses.sort(), served: count() - before, due }
}

const times = <Item>(count: number, item: Item): Item[] => Array.from({ length: count }, () => item)

const substitutions: Attack[] = [
  {
    kind: 'cross-resource substitution',
    name: 'a payment for a cheap resource at an expensive one',
    answers: [402, 402],
    async run(target) {
      const payment = await sign(await newAccount(target), await offerOf(target.cheap.url))
      return attack(target, [
        [target.dear.url, header(payment)],
        [target.dear.url, asV1(payment)],
      ])
    },
  },
  {
    kind: 'cross-resource substitution',
    name: 'the expensive offer with the amount, payee or challenge of the cheap one',
    answers: times(9, 402),
    async run(target) {
      const [account, cheap, dear] = [
        await newAccount(target),
        await offerOf(target.cheap.url),
        await offerOf(target.dear.url),
      ]
      const [{ extra, amount, payTo }] = cheap.accepts
      const changes = [{ extra }, { amount }, { payTo }, { amount, payTo }, { amount, payTo, extra }]
      const [good] = dear.accepts
      // Changing a field to a value that both offers share is not an attack, and neither is paying the higher price
      // without the challenge.
      const real = changes.filter((change) => !isDeepStrictEqual({ ...good, ...change }, good))
      const attempts = await Promise.all(
        real.map(async (change): Promise<Attempt[]> => {
          const payment = await sign(account, dear, change)
          const forms: Attempt[] = [
            [target.dear.url, header(payment)],
            [target.dear.url, asV1(payment)],
          ]
          return 'amount' in change || 'payTo' in change ? forms : forms.slice(0, 1)
        }),
      )
      return attack(target, attempts.flat())
    },
  },
  {
    kind: 'cross-resource substitution',
    name: 'a payment for one resource at another with the same price',
    answers: [402],
    async run(target) {
      const payment = await sign(await newAccount(target), await offerOf(target.cheap.url))
      return attack(target, [[target.cheap.otherUrl, header(payment)]])
    },
  },
]

const repetitions: Attack[] = [
  {
    kind: 'duplicate settlement',
    name: 'one payment twenty times at once, in the forms of x402 v1 and v2',
    answers: [200, ...times(19, 409)],
    async run(target) {
      const payment = await sign(await newAccount(target), await offerOf(target.cheap.url))
      const forms = [...times(10, header(payment)), ...times(10, asV1(payment))]
      return attack(
        target,
        forms.map((form): Attempt => [target.cheap.url, form]),
        1,
      )
    },
  },
  {
    kind: 'duplicate settlement',
    name: 'one authorization with ten offers at once',
    answers: [200, ...times(9, 409)],
    async run(target) {
      const { url } = target.cheap
      const payment = await sign(await newAccount(target), await offerOf(url))
      const offers = await Promise.all(times(10, url).map(offerOf))
      return attack(
        target,
        offers.map(({ accepts }): Attempt => [url, header({ ...payment, accepted: accepts[0] })]),
        1,
      )
    },
  },
  {
    kind: 'replay',
    name: 'a payment again after it was answered',
    answers: times(4, 409),
    async run(target) {
      const { url } = target.cheap
      const payment = await sign(await newAccount(target), await offerOf(url))
      await attack(target, [[url, header(payment)]])
      return attack(target, [
        ...times(2, [url, header(payment)] as Attempt),
        ...times(2, [url, asV1(payment)] as Attempt),
      ])
    },
  },
  {
    kind: 'overdraft',
    name: 'ten payments at once with a balance for one',
    answers: [200, ...times(9, 402)],
    async run(target) {
      const { url } = target.dear
      const account = await newAccount(target, '0.50')
      const payments = await Promise.all(times(10, url).map(async (one) => sign(account, await offerOf(one))))
      return attack(
        target,
        payments.map((payment): Attempt => [url, header(payment)]),
        1,
      )
    },
  },
]

const claims: [string, (own: Hex) => object][] = [
  ['its own wallet as the payee', (own) => ({ payTo: own })],
  ['one unit as the amount', () => ({ amount: '1' })],
  ['an amount of zero', () => ({ amount: '0' })],
  ['a token of the attacker', () => ({ asset: `0x${'d'.repeat(40)}` })],
  ['another chain', () => ({ network: 'eip155:8453' })],
  ['another domain', () => ({ domain: { name: 'Dollar', version: '1' } })],
]

const bindings: Attack[] = [
  ...claims.map(
    ([name, changeFor]): Attack => ({
      kind: 'binding',
      name,
      answers: [402, 402],
      async run(target) {
        const { url } = target.cheap
        const account = await newAccount(target)
        const offer = await offerOf(url)
        const { domain, ...change } = changeFor(account.address) as { domain?: object }
        const extra = { ...offer.accepts[0].extra, ...domain }
        const payment = await sign(account, offer, { ...change, extra })
        return attack(target, [
          [url, header(payment)],
          [url, asV1(payment)],
        ])
      },
    }),
  ),
  {
    kind: 'binding',
    name: 'a signed field that was changed afterwards',
    answers: times(12, 402),
    async run(target) {
      const { url } = target.cheap
      const payment = await sign(await newAccount(target), await offerOf(url))
      const changed = ['from', 'to', 'value', 'validAfter', 'validBefore', 'nonce'].map((field) => {
        const value = payment.payload.authorization[field] as string
        const other = value.startsWith('0x')
          ? `0x${value.slice(2).replace(/^./, (c) => (c === '1' ? '2' : '1'))}`.toLowerCase()
          : `${BigInt(value) + 1n}`
        const authorization = { ...payment.payload.authorization, [field]: other }
        return { ...payment, payload: { ...payment.payload, authorization } }
      })
      return attack(
        target,
        changed.flatMap((one): Attempt[] => [
          [url, header(one)],
          [url, asV1(one)],
        ]),
      )
    },
  },
]

const purchases = 5

/**
 * Makes five purchases with one wallet. Before each purchase the wallet holds exactly the price; while the purchase
 * is served, `undo` makes its payment worthless.
 */
function denial(
  name: string,
  shop: (target: Target) => AttackedShop,
  undo: (target: Target, account: PrivateKeyAccount, payment: Payment) => Promise<unknown>,
  rest: Pick<Attack, 'answers' | 'ourLeak'>,
): Attack {
  return {
    kind: 'denial of settlement',
    name,
    ...rest,
    async run(target) {
      const { url, whileServing } = shop(target)
      const account = await newAccount(target, '0')
      const payments: Payment[] = []
      const outcomes: Outcome[] = []
      for (let bought = 0; bought < purchases; bought++) {
        const offer = await offerOf(url)
        await fund(target, account, BigInt(offer.accepts[0].amount))
        const payment = await sign(account, offer)
        payments.push(payment)
        whileServing(() => undo(target, account, payment))
        outcomes.push(await attack(target, [[url, header(payment)]]))
      }
      whileServing(async () => {})
      const statuses = outcomes.flatMap((outcome) => outcome.statuses).sort()
      const served = outcomes.reduce((sum, outcome) => sum + outcome.served, 0)
      return { statuses, served, due: await countUsed(target, payments) }
    },
  }
}

/** The buyer owes the served payment, which wasn't paid, and the wallet's later payments are rejected. */
const owed = {
  answers: [200, ...times(purchases - 1, 402)],
  ourLeak: { most: 1, because: 'below SETTLE_BEFORE_SERVE_USDC a payment settles after it was served' },
}

const denials: Attack[] = [
  denial(
    'moving the money away while a purchase of 0.01 USDC is served',
    ({ cheap }) => cheap,
    moveAway,
    owed,
  ),
  denial(
    'cancelling the authorization while a purchase of 0.01 USDC is served',
    ({ cheap }) => cheap,
    cancel,
    owed,
  ),
  denial('moving the money away while a purchase of 12 USDC is served', ({ dearest }) => dearest, moveAway, {
    answers: times(purchases, 200),
  }),
  denial(
    'cancelling the authorization while a purchase of 12 USDC is served',
    ({ dearest }) => dearest,
    cancel,
    {
      answers: times(purchases, 200),
    },
  ),
]

/** Tops a wallet up to an amount. */
async function fund({ chain }: Target, { address }: PrivateKeyAccount, amount: bigint): Promise<void> {
  const balance = await readBalance(clientOf(chain), tokenOf(chain), address)
  if (balance < amount) await chain.mintUsdc([address], amount - balance)
}

async function moveAway(target: Target, account: PrivateKeyAccount): Promise<void> {
  const { chain } = target
  const client = clientOf(chain)
  const value = await readBalance(client, tokenOf(chain), account.address)
  if (value === 0n) return
  const signed = await signAuthorization(
    { network: networkByName(chain.network), token: tokenOf(chain) },
    account,
    {
      from: account.address,
      to: randomHex(20),
      value,
      validAfter: 0n,
      validBefore: 2n ** 40n - 1n,
      nonce: randomHex(32),
    },
  )
  await client.waitForTransactionReceipt({ hash: await sendDirectly(target, signed) })
}

async function cancel(target: Target, account: PrivateKeyAccount, { payload }: Payment): Promise<void> {
  const { chain } = target
  const served = { network: networkByName(chain.network), token: tokenOf(chain), client: clientOf(chain) }
  // USDC refuses the cancellation of a used authorization.
  await cancelDirectly({ chain, served }, account, payload.authorization.nonce as Hex).catch(() => {})
}

const used = parseAbiItem('event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)')

async function countUsed({ chain }: Target, payments: Payment[]): Promise<number> {
  const logs = await Promise.all(
    payments.map(({ payload: { authorization } }) =>
      clientOf(chain).getLogs({
        address: tokenOf(chain),
        event: used,
        args: { authorizer: authorization.from as Hex, nonce: authorization.nonce as Hex },
        fromBlock: 0n,
      }),
    ),
  )
  return logs.flat().length
}

function clientOf(chain: LocalChain) {
  return createPublicClient({ transport: http(chain.url), cacheTime: 0, pollingInterval: 50 })
}

const webLayer: Attack[] = [
  {
    kind: 'web layer',
    name: 'two payments in one request',
    answers: times(10, 400),
    async run(target) {
      const account = await newAccount(target, '5')
      const attempts = await Promise.all(
        [target.cheap, target.dear].map(async ({ url }): Promise<Attempt[]> => {
          const [first, second] = [
            await sign(account, await offerOf(url)),
            await sign(account, await offerOf(url)),
          ]
          const [one, two] = [first, second].map(encodePaymentHeader) as [string, string]
          return [
            [url, { 'PAYMENT-SIGNATURE': [one, one] }],
            [url, { 'PAYMENT-SIGNATURE': [one, two] }],
            [url, { ...header(first), ...asV1(second) }],
            [url, { ...header(first), authorization: 'x402 mock:mock' }],
            [url, { 'PAYMENT-SIGNATURE': `${one},${two}` }],
          ]
        }),
      )
      // If a seller accepts the one intact payment of each pair, it is paid.
      return attack(target, attempts.flat(), 2)
    },
  },
  {
    kind: 'web layer',
    name: 'a header that is not a payment',
    answers: times(6, 400),
    async run(target) {
      const { url } = target.cheap
      const json = JSON.stringify(await sign(await newAccount(target), await offerOf(url)))
      const forms = [
        json,
        btoa('null'),
        btoa('[]'),
        btoa(json.slice(0, -1)),
        btoa(`${json}${json}`),
        `${btoa(json)}\t=`,
      ]
      return attack(
        target,
        forms.map((form): Attempt => [url, { 'PAYMENT-SIGNATURE': form }]),
      )
    },
  },
  {
    kind: 'web layer',
    name: 'no payment, with another method or another spelling of the path',
    // Sorted: 200 for OPTIONS in Express, 402 for paths that Express or the gateway finds, and 404 for all others.
    answers: [200, ...times(8, 402), ...times(17, 404)],
    async run(target) {
      const forms = [target.cheap, target.dear].flatMap(({ url }): Attempt[] => {
        const { origin, pathname } = new URL(url)
        const [, first = '', ...others] = pathname
        const escaped = `%${first.charCodeAt(0).toString(16)}`
        const paths = [
          `//${first}${others.join('')}`,
          `/${escaped}${others.join('')}`,
          `/./${first}${others.join('')}`,
          `/x/..${pathname}`,
          `${pathname}/`,
          `${pathname}?paid=1`,
          `${pathname}#paid`,
          `${pathname};paid`,
          `${pathname}%20`,
          pathname.toUpperCase(),
        ]
        return [
          ...paths.map((path): Attempt => [`${origin}${path}`]),
          [url, {}, 'HEAD'],
          [url, {}, 'OPTIONS'],
          [url, {}, 'POST'],
        ]
      })
      return attack(target, forms)
    },
  },
  {
    kind: 'web layer',
    name: 'a paid answer that a shared cache may store for others',
    answers: [200],
    async run(target) {
      const { url } = target.cheap
      const payment = await sign(await newAccount(target), await offerOf(url))
      const { status, headers } = await fetch(url, { headers: header(payment) as Record<string, string> })
      const isShared = !/\b(private|no-store)\b/.test(headers.get('cache-control') ?? '')
      return { statuses: [status], served: isShared ? 2 : 1, due: 1 }
    },
  },
]

export const attacks: readonly Attack[] = [
  ...substitutions,
  ...repetitions,
  ...bindings,
  ...denials,
  ...webLayer,
]

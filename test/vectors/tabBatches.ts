import {
  type Address,
  concat,
  encodeFunctionData,
  encodePacked,
  type Hex,
  hashTypedData,
  keccak256,
  numberToHex,
  parseAbi,
  parseSignature,
  sha256,
  slice,
  stringToHex,
  toHex,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

// Nothing of sdk/src/protocol is used here: the vectors are what it is held against.

const account = (label: string): Address => slice(sha256(toHex(`tollkeeper vector: ${label}`)), 0, 20)
const buyerOf = (label: string) => privateKeyToAccount(keccak256(toHex(`tollkeeper vector: ${label}`)))

const settleAbi = parseAbi([
  'struct Batch { address token; address feeRecipient; uint16 rewardShare; bytes32 batchId; uint8 trigger; uint64 callGasLimit; }',
  'struct Tab { uint256 head; bytes32 nonce; bytes32 r; bytes32 vs; }',
  'function settle(Batch batch, uint256[] splits, Tab[] tabs, bytes lines, bytes[] signatures) returns (bytes outcomes)',
])

const types = {
  ReceiveWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const

const domain = {
  name: 'USD Coin',
  version: '2',
  chainId: 8453,
  verifyingContract: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
} as const
const contract = account('tab contract')
const batchOf = (rewardShare: number) => ({
  token: domain.verifyingContract,
  feeRecipient: account('platform'),
  rewardShare,
  batchId: keccak256(stringToHex('tollkeeper vector: batch id')),
  trigger: 1,
  callGasLimit: 150_000n,
})

type Line = { split: Hex; amount: bigint }
type Case = {
  payer: { label: string } | { wallet: Address; signature: Hex }
  sequence: number
  expiry: number
  lines: Line[]
}

const splitOf = (provider: string, providerShare: number, platformShare: number): Hex =>
  encodePacked(['address', 'uint48', 'uint48'], [account(provider), providerShare, platformShare])
const [most40, most48] = [2 ** 40 - 1, 2n ** 48n - 1n]
const micro = splitOf('provider 0', 19, 1)
const ultraMicro = splitOf('provider 0', 9, 1)
const other = splitOf('provider 1', 9, 1)

const one: Case = {
  payer: { label: 'buyer' },
  sequence: 1,
  expiry: 1_800_093_600,
  lines: [{ split: micro, amount: 50_000n }],
}
const several: Case = {
  payer: { label: 'second buyer' },
  sequence: 300,
  expiry: 1_800_000_001,
  lines: [
    { split: other, amount: 1n },
    { split: micro, amount: 0n },
    { split: ultraMicro, amount: 123_456_789n },
  ],
}
const largest: Case = {
  payer: { label: 'third buyer' },
  sequence: most40,
  expiry: most40,
  lines: Array.from({ length: 20 }, (_, index) => ({
    split: splitOf(`provider ${index}`, Number(most48), Number(most48)),
    amount: most48,
  })),
}
const wallet: Case = {
  payer: { wallet: account('wallet'), signature: `0x${'ab'.repeat(130)}` },
  sequence: 2,
  expiry: 1_800_093_600,
  lines: [{ split: other, amount: 99n }],
}

async function tabOf(from: Case, rewardShare: number) {
  const { payer, sequence, expiry, lines } = from
  const address = ('wallet' in payer ? payer.wallet : buyerOf(payer.label).address).toLowerCase() as Address
  const commitment = keccak256(
    concat([
      // 160 bits, 40 of nothing, 16 and 40.
      encodePacked(
        ['address', 'uint40', 'uint16', 'uint40'],
        [account('platform'), 0, rewardShare, sequence],
      ),
      ...lines.flatMap(({ split, amount }) => [split, numberToHex(amount, { size: 32 })]),
    ]),
  )
  const message = {
    from: address,
    to: contract,
    value: lines.reduce((sum, { amount }) => sum + amount, 0n),
    validAfter: 0n,
    validBefore: BigInt(concat([slice(commitment, 0, 27), numberToHex(expiry, { size: 5 })])),
    nonce: keccak256(stringToHex(`tollkeeper vector: tab of ${address}`)),
  }
  const typed = { domain, types, primaryType: 'ReceiveWithAuthorization', message } as const
  const signature = 'wallet' in payer ? payer.signature : await buyerOf(payer.label).signTypedData(typed)
  return {
    payer: address,
    nonce: message.nonce,
    sequence,
    expiry,
    lines: lines.map(({ split, amount }) => ({ split, amount: amount.toString() })),
    value: message.value.toString(),
    digest: hashTypedData(typed),
    signature,
  }
}

const packLines = (lines: readonly Line[], splits: readonly Hex[]) =>
  lines.map(({ split, amount }) =>
    encodePacked(['uint16', 'uint48'], [splits.indexOf(split), Number(amount)]),
  )

async function vectorOf(name: string, cases: readonly Case[], rewardShare: number) {
  const splits = [...new Set(cases.flatMap(({ lines }) => lines.map(({ split }) => split)))].sort()
  const tabs = await Promise.all(cases.map((from) => tabOf(from, rewardShare)))
  const signatures: Hex[] = []
  const packed = tabs.map(({ payer, nonce, sequence, expiry, signature, lines }) => {
    const head = BigInt(
      encodePacked(['address', 'uint16', 'uint40', 'uint40'], [payer, lines.length, sequence, expiry]),
    )
    if (signature.length > 132)
      return {
        head,
        nonce,
        r: numberToHex(signatures.push(signature) - 1, { size: 32 }),
        vs: numberToHex(0, { size: 32 }),
      }
    const { r, s, yParity } = parseSignature(signature)
    return { head, nonce, r, vs: numberToHex(BigInt(s) | (BigInt(yParity) << 255n), { size: 32 }) }
  })
  const lines = concat(cases.flatMap((from) => packLines(from.lines, splits)))
  const batch = batchOf(rewardShare)
  return {
    name,
    batch: { ...batch, callGasLimit: batch.callGasLimit.toString() },
    tabs,
    splits,
    signatures,
    calldata: encodeFunctionData({
      abi: settleAbi,
      args: [batch, splits.map(BigInt), packed, lines, signatures],
    }),
    /** `lines` of TabsSettled, where all settle. */
    settledLines: concat(
      cases.flatMap((from) => [
        encodePacked(['uint16', 'uint40'], [from.lines.length, from.sequence]),
        ...packLines(from.lines, splits),
      ]),
    ),
  }
}

/** What `test/vectors/tabBatches.json` holds. */
export async function generateTabBatches() {
  return {
    about:
      'Batches of tabs: as signed, as packed for TabSettlement.settle, and as its event TabsSettled tells. Made by test/vectors/generate.ts with viem alone.',
    domain,
    contract,
    batches: [
      await vectorOf('one line', [one], 1_000),
      await vectorOf('several payers, one a contract wallet', [several, wallet, one], 0),
      await vectorOf('the most of everything', [largest], 10_000),
    ],
  }
}

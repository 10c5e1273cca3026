import {
  type Address,
  concat,
  encodeFunctionData,
  encodePacked,
  type Hex,
  keccak256,
  numberToHex,
  parseAbi,
  parseSignature,
  stringToHex,
} from 'viem'
import {
  account,
  buyerOf,
  contract,
  domain,
  type Line,
  linesAsText,
  mostUint40,
  mostUint48,
  splitOf,
  tabMessage,
} from './tabMessage.ts'

const settleAbi = parseAbi([
  'struct Batch { address token; address feeRecipient; uint16 rewardShare; bytes32 batchId; uint8 trigger; uint64 callGasLimit; uint64 tabGas; uint64 lineGas; uint64 payoutGas; }',
  'struct Tab { uint256 head; bytes32 nonce; bytes32 r; bytes32 vs; }',
  'function settle(Batch batch, uint256[] splits, Tab[] tabs, bytes lines, bytes[] signatures) returns (bytes outcomes)',
])

const batchOf = (rewardShare: number) => ({
  token: domain.verifyingContract,
  feeRecipient: account('platform'),
  rewardShare,
  batchId: keccak256(stringToHex('tollkeeper vector: batch id')),
  trigger: 1,
  callGasLimit: 150_000n,
  tabGas: 600n,
  lineGas: 300n,
  payoutGas: 70_000n,
})

type Case = {
  payer: { label: string } | { wallet: Address; signature: Hex }
  sequence: number
  expiry: number
  lines: Line[]
}

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
  sequence: mostUint40,
  expiry: mostUint40,
  lines: Array.from({ length: 20 }, (_, index) => ({
    split: splitOf(`provider ${index}`, Number(mostUint48), Number(mostUint48)),
    amount: mostUint48,
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
  const { message, typed, digest } = tabMessage({
    payer: address,
    platform: account('platform'),
    rewardShare,
    sequence,
    expiry,
    lines,
    nonce: keccak256(stringToHex(`tollkeeper vector: tab of ${address}`)),
  })
  const signature = 'wallet' in payer ? payer.signature : await buyerOf(payer.label).signTypedData(typed)
  return {
    payer: address,
    nonce: message.nonce,
    sequence,
    expiry,
    lines: linesAsText(lines),
    value: message.value.toString(),
    digest,
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
    batch: {
      ...batch,
      callGasLimit: batch.callGasLimit.toString(),
      tabGas: batch.tabGas.toString(),
      lineGas: batch.lineGas.toString(),
      payoutGas: batch.payoutGas.toString(),
    },
    tabs,
    splits,
    signatures,
    calldata: encodeFunctionData({
      abi: settleAbi,
      args: [batch, splits.map(BigInt), packed, lines, signatures],
    }),
    /** `lines` of TabsSettled if all settle. */
    settledLines: concat(
      cases.flatMap((from) => [
        encodePacked(['uint16', 'uint40'], [from.lines.length, from.sequence]),
        ...packLines(from.lines, splits),
      ]),
    ),
  }
}

/** Returns the content of `test/vectors/tabBatches.json`. */
export async function generateTabBatches() {
  return {
    about:
      'Batches of tabs: as signed, as packed for TabSettlement.settle, and as emitted in its event TabsSettled. Made by test/vectors/generate.ts with viem alone.',
    domain,
    contract,
    batches: [
      await vectorOf('one line', [one], 1_000),
      await vectorOf('several payers, one a contract wallet', [several, wallet, one], 0),
      await vectorOf('maximum values', [largest], 10_000),
    ],
  }
}

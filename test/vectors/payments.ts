import {
  type Address,
  domainSeparator,
  encodeAbiParameters,
  encodeFunctionData,
  encodePacked,
  type Hex,
  hashTypedData,
  keccak256,
  numberToHex,
  parseAbi,
  parseSignature,
  toHex,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

// Does not use sdk/src/protocol, because the vectors check it.

const types = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const

const settleAbi = parseAbi([
  'struct Batch { address token; address feeRecipient; bytes32 batchId; uint8 trigger; uint64 callGasLimit; }',
  'struct Payment { uint256 head; uint256 values; bytes32 nonce; bytes32 feeNonce; bytes32 r; bytes32 vs; bytes32 feeR; bytes32 feeVs; }',
  'function settle(Batch batch, address[] payees, Payment[] payments, bytes[] signatures) returns (bytes outcomes)',
])

const settleAuthorizationsAbi = parseAbi([
  'struct Batch { address token; address feeRecipient; bytes32 batchId; uint8 trigger; uint64 callGasLimit; }',
  'struct Authorization { uint256 head; uint256 value; bytes32 nonce; bytes32 r; bytes32 vs; }',
  'struct Sweep { address factory; uint64 gasLimit; uint256[] splits; }',
  'function settleAuthorizations(Batch batch, address[] payees, Authorization[] authorizations, bytes[] signatures, Sweep sweep) returns (bytes outcomes)',
])

const domains = {
  base: {
    name: 'USD Coin',
    version: '2',
    chainId: 8453,
    verifyingContract: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
  },
  'base-sepolia': {
    name: 'USDC',
    version: '2',
    chainId: 84532,
    verifyingContract: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
  },
  localhost: {
    name: 'USD Coin',
    version: '2',
    chainId: 31337,
    verifyingContract: '0x5FbDB2315678afecb367f032d93F642f64180aa3',
  },
} as const

const privateKey = (label: string): Hex => keccak256(toHex(`tollkeeper vector: ${label}`))
const word = (label: string): Hex => keccak256(toHex(`tollkeeper vector word: ${label}`))
const account = (label: string) => privateKeyToAccount(privateKey(label))

const provider = account('provider').address
const secondProvider = account('second provider').address
const platform = account('platform').address

const issuer = 'https://gateway.example'
const zeroWord = numberToHex(0n, { size: 32 })
const hour = 1_800_003_600n

type Case = {
  name: string
  network: keyof typeof domains
  buyer: string
  payee: Address
  value: bigint
  /** 0 means no fee authorization. */
  feeValue: bigint
  validAfter: bigint
  validBefore: bigint
  /** Derived from the challenge's request id, or two given nonces. */
  nonces: { requestId: string } | { nonce: Hex; feeNonce: Hex }
  /** Signatures of a contract wallet, used verbatim. */
  walletSignatures?: { provider: Hex; fee: Hex }
}

const usual = { network: 'base', buyer: 'buyer', payee: provider, validAfter: 0n, validBefore: hour } as const

const cases: Case[] = [
  {
    ...usual,
    name: 'bound nonces',
    value: 47_500n,
    feeValue: 2_500n,
    nonces: { requestId: 'req_000102030405060708090a0b0c0d0e0f' },
  },
  {
    ...usual,
    name: 'bound nonces, another buyer and payee',
    buyer: 'second buyer',
    payee: secondProvider,
    value: 4_500n,
    feeValue: 500n,
    nonces: { requestId: 'req_ffffffffffffffffffffffffffffffff' },
  },
  {
    ...usual,
    name: 'random nonces',
    value: 920_000n,
    feeValue: 80_000n,
    nonces: { nonce: word('nonce'), feeNonce: word('fee nonce') },
  },
  {
    ...usual,
    name: 'minimum values',
    value: 1n,
    feeValue: 1n,
    validBefore: 1n,
    nonces: { nonce: numberToHex(1n, { size: 32 }), feeNonce: numberToHex(2n, { size: 32 }) },
  },
  {
    ...usual,
    name: 'maximum values',
    value: 2n ** 64n - 1n,
    feeValue: 2n ** 64n - 1n,
    validAfter: 2n ** 40n - 2n,
    validBefore: 2n ** 40n - 1n,
    nonces: { nonce: numberToHex(2n ** 256n - 1n), feeNonce: numberToHex(2n ** 256n - 2n) },
  },
  {
    ...usual,
    name: 'one authorization alone',
    value: 50_000n,
    feeValue: 0n,
    nonces: { nonce: word('single'), feeNonce: zeroWord },
  },
  {
    ...usual,
    name: 'contract wallet',
    value: 47_500n,
    feeValue: 2_500n,
    nonces: { requestId: 'req_0123456789abcdef0123456789abcdef' },
    walletSignatures: { provider: `0x${'a1'.repeat(97)}`, fee: `0x${'b2'.repeat(97)}` },
  },
  {
    ...usual,
    name: 'base-sepolia',
    network: 'base-sepolia',
    value: 49_950_000n,
    feeValue: 1_300_000n,
    nonces: { requestId: 'req_84532000000000000000000000084532' },
  },
  {
    ...usual,
    name: 'localhost',
    network: 'localhost',
    value: 11_650_000n,
    feeValue: 350_000n,
    nonces: { requestId: 'req_31337000000000000000000000031337' },
  },
]

/**
 * Both values of v must occur among the vectors' signatures, so this loop tries nonces until a signature has the wanted v.
 */
const parities: Case[] = []
for (const v of [27n, 28n]) {
  for (let i = 0; ; i++) {
    const nonce = word(`parity ${i}`)
    const candidate: Case = {
      ...usual,
      name: `v is ${v}`,
      value: 95n,
      feeValue: 0n,
      nonces: { nonce, feeNonce: zeroWord },
    }
    const { signature } = await sign(candidate, candidate.payee, candidate.value, nonce)
    if (parseSignature(signature).v === v) {
      parities.push(candidate)
      break
    }
  }
}

async function sign(from: Case, to: Address, value: bigint, nonce: Hex, walletSignature?: Hex) {
  const buyer = account(from.buyer)
  const domain = domains[from.network]
  const message = {
    from: buyer.address,
    to,
    value,
    validAfter: from.validAfter,
    validBefore: from.validBefore,
    nonce,
  }
  const typedData = { domain, types, primaryType: 'TransferWithAuthorization', message } as const
  const signature = walletSignature ?? (await buyer.signTypedData(typedData))
  const authorization = {
    from: buyer.address.toLowerCase(),
    to: to.toLowerCase(),
    value: value.toString(),
    validAfter: from.validAfter.toString(),
    validBefore: from.validBefore.toString(),
    nonce,
  }
  return {
    ...authorization,
    digest: hashTypedData(typedData),
    signature,
    payload: [...Object.values(authorization), signature].join(','),
  }
}

function compact(signature: Hex): { r: Hex; vs: Hex } {
  const { r, s, yParity } = parseSignature(signature)
  return { r, vs: numberToHex(BigInt(s) | (BigInt(yParity) << 255n), { size: 32 }) }
}

/** Returns the contract's Payment struct, field by field, and the signatures that it refers to by index. */
async function pack(from: Case, payeeIndex: number, signatureIndex: number) {
  const { authorization, fee, isBound } = await signBoth(from)
  const signatures = from.walletSignatures ? [from.walletSignatures.provider, from.walletSignatures.fee] : []
  const indexed = (index: number) => ({ r: numberToHex(index, { size: 32 }), vs: zeroWord })
  const own = from.walletSignatures ? indexed(signatureIndex) : compact(authorization.signature)
  const feeParts = from.walletSignatures
    ? indexed(signatureIndex + 1)
    : fee
      ? compact(fee.signature)
      : { r: zeroWord, vs: zeroWord }
  const packed = {
    head: encodePacked(
      ['address', 'uint16', 'uint40', 'uint40'],
      [account(from.buyer).address, payeeIndex, Number(from.validAfter), Number(from.validBefore)],
    ),
    values: encodePacked(['uint128', 'uint128'], [from.value, from.feeValue]),
    nonce: authorization.nonce,
    feeNonce: isBound || !fee ? zeroWord : fee.nonce,
    r: own.r,
    vs: own.vs,
    feeR: feeParts.r,
    feeVs: feeParts.vs,
  }
  return { packed, signatures }
}

async function signBoth(from: Case) {
  const { nonces } = from
  const isBound = 'requestId' in nonces
  const nonce = isBound
    ? keccak256(encodePacked(['string'], [`x402:${issuer}:${nonces.requestId}`]))
    : nonces.nonce
  const feeNonce = isBound ? keccak256(encodeAbiParameters([{ type: 'bytes32' }], [nonce])) : nonces.feeNonce
  const authorization = await sign(from, from.payee, from.value, nonce, from.walletSignatures?.provider)
  const fee =
    from.feeValue === 0n
      ? null
      : await sign(from, platform, from.feeValue, feeNonce, from.walletSignatures?.fee)
  return { authorization, fee, isBound }
}

async function paymentVector(from: Case) {
  const { authorization, fee } = await signBoth(from)
  const { packed, signatures } = await pack(from, 0, 0)
  const domain = domains[from.network]
  return {
    name: from.name,
    network: from.network,
    issuer: 'requestId' in from.nonces ? issuer : null,
    requestId: 'requestId' in from.nonces ? from.nonces.requestId : null,
    domain,
    domainSeparator: domainSeparator({ domain }),
    authorization,
    fee,
    packed,
    signatures,
  }
}

const batch = {
  token: domains.base.verifyingContract,
  feeRecipient: platform,
  batchId: word('batch id'),
  trigger: 1,
  callGasLimit: 150_000n,
} as const

/** Packs several payments of one call, which refer to shared lists of payees and signatures. */
async function packAll(names: readonly string[], signaturesOf: (all: Hex[]) => Hex[]) {
  const payees: Address[] = []
  const signatures: Hex[] = []
  const all = []
  for (const name of names) {
    const from = cases.find((candidate) => candidate.name === name)
    if (!from) throw new Error(`No case is named ${name}`)
    if (!payees.includes(from.payee)) payees.push(from.payee)
    const { packed, signatures: added } = await pack(from, payees.indexOf(from.payee), signatures.length)
    all.push({ from, packed })
    signatures.push(...signaturesOf(added))
  }
  const shown = { ...batch, callGasLimit: batch.callGasLimit.toString() }
  return { all, payees, signatures, shared: { batch: shown, payments: names, payees, signatures } }
}

/** One call of `settleAuthorizations` with the first authorization of each payment, and splitters to sweep. */
async function authorizationsVector(names: readonly string[], splits: readonly bigint[]) {
  const { all, payees, signatures, shared } = await packAll(names, (both) => both.slice(0, 1))
  const authorizations = all.map(({ from: { value }, packed: { head, nonce, r, vs } }) => {
    return { head: BigInt(head), value, nonce, r, vs }
  })
  const sweep = { factory: account('factory').address, gasLimit: 250_000n, splits }
  const args = [batch, payees, authorizations, signatures, sweep] as const
  return {
    ...shared,
    sweep: { ...sweep, gasLimit: sweep.gasLimit.toString(), splits: splits.map(String) },
    calldata: encodeFunctionData({ abi: settleAuthorizationsAbi, args }),
  }
}

/** One call of `settle` with several payments. */
async function batchVector(names: readonly string[]) {
  const { all, payees, signatures, shared } = await packAll(names, (both) => both)
  const payments = all.map(({ packed }) => {
    return { ...packed, head: BigInt(packed.head), values: BigInt(packed.values) }
  })
  const args = [batch, payees, payments, signatures] as const
  return { ...shared, calldata: encodeFunctionData({ abi: settleAbi, args }) }
}

/** Returns the content of `test/vectors/payments.json`. */
export async function generatePayments() {
  return {
    about:
      'Payments as signed, as carried in the Authorization header and as packed for BatchSettlement.settle. Made by test/vectors/generate.ts with viem alone.',
    privateKeys: Object.fromEntries(
      ['buyer', 'second buyer', 'provider', 'second provider', 'platform'].map((label) => [
        label,
        privateKey(label),
      ]),
    ),
    payments: await Promise.all([...cases, ...parities].map(paymentVector)),
    batches: [
      await batchVector(['bound nonces']),
      await batchVector([
        'random nonces',
        'bound nonces, another buyer and payee',
        'contract wallet',
        'one authorization alone',
        'bound nonces',
      ]),
    ],
    authorizationBatches: [
      await authorizationsVector(['one authorization alone'], []),
      await authorizationsVector(
        [
          'random nonces',
          'bound nonces, another buyer and payee',
          'contract wallet',
          'one authorization alone',
        ],
        [(BigInt(provider) << 96n) | (9n << 48n) | 1n, 2n ** 256n - 1n],
      ),
    ],
  }
}

import {
  type Address,
  encodeAbiParameters,
  encodePacked,
  getContractAddress,
  type Hex,
  keccak256,
  sha256,
  slice,
  toHex,
} from 'viem'

// Does not use sdk/src/protocol, because the vectors check it.

const account = (label: string): Address => slice(sha256(toHex(`tollkeeper vector: ${label}`)), 0, 20)

const most = 2n ** 48n - 1n
const cases = [
  { name: 'nine to one', providerShare: 9n, platformShare: 1n },
  { name: 'nineteen to one, another provider', providerShare: 19n, platformShare: 1n },
  { name: 'minimum shares', providerShare: 0n, platformShare: 0n },
  { name: 'maximum shares', providerShare: most, platformShare: most },
]

function vectorOf({ name, ...shares }: (typeof cases)[number], index: number) {
  const [provider, platform, factory] = [
    account(`provider ${index}`),
    account('platform'),
    account(`factory ${index % 2}`),
  ]
  const { providerShare, platformShare } = shares
  const split = encodePacked(
    ['address', 'uint48', 'uint48'],
    [provider, Number(providerShare), Number(platformShare)],
  )
  // ERC-1167 with arguments, as https://github.com/OpenZeppelin/openzeppelin-contracts writes it (Clones, 5.2
  // and later).
  const implementation = getContractAddress({ opcode: 'CREATE', from: factory, nonce: 1n })
  const clone = encodePacked(
    ['bytes', 'address', 'bytes', 'bytes', 'address'],
    [
      '0x363d3d373d3d3d363d73',
      implementation,
      '0x5af43d82803e903d91602b57fd5bf3',
      encodeAbiParameters([{ type: 'uint256' }], [BigInt(split)]),
      platform,
    ],
  )
  const size = (clone.length - 2) / 2
  const bytecode: Hex = encodePacked(
    ['bytes1', 'uint16', 'bytes', 'bytes'],
    ['0x61', size, '0x3d81600a3d39f3', clone],
  )
  const address = getContractAddress({
    opcode: 'CREATE2',
    from: factory,
    salt: `0x${'0'.repeat(64)}`,
    bytecodeHash: keccak256(bytecode),
  })
  return {
    name,
    terms: {
      provider,
      platform,
      providerShare: providerShare.toString(),
      platformShare: platformShare.toString(),
    },
    factory,
    implementation,
    split: encodeAbiParameters([{ type: 'uint256' }], [BigInt(split)]),
    address,
  }
}

/** Returns the content of `test/vectors/splitters.json`. */
export function generateSplitters() {
  return {
    about:
      'Splitters: their terms, as packed, and the resulting address. Made by test/vectors/generate.ts with viem alone.',
    splitters: cases.map(vectorOf),
  }
}

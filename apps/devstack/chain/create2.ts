import { type Address, concatHex, getContractAddress, type Hex, keccak256, size, zeroHash } from 'viem'

/** Arachnid's deterministic deployment proxy, at the same address on every EVM chain. */
export const create2Factory: Address = '0x4e59b44847b379578588920cA78FbF26c0B4956C'

/** The keyless account that deploys the factory by its pre-signed transaction. The account needs 0.01 ETH. */
export const create2FactoryDeployer: Address = '0x3fAB184622Dc19b6109349B94811493BF2a45362'
export const create2FactoryTransaction: Hex =
  '0xf8a58085174876e800830186a08080b853604580600e600039806000f350fe7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b8082525050506014600cf31ba02222222222222222222222222222222222222222222222222222222222222222a02222222222222222222222222222222222222222222222222222222222222222'

/** Returns the address that `creationCode` gets through the factory with salt 0. */
export function create2Address(creationCode: Hex): Address {
  return getContractAddress({
    opcode: 'CREATE2',
    from: create2Factory,
    salt: zeroHash,
    bytecodeHash: keccak256(creationCode),
  })
}

/** Returns the data to send to the factory to deploy `creationCode` with salt 0. */
export function create2Data(creationCode: Hex): Hex {
  return concatHex([zeroHash, creationCode])
}

/**
 * Returns the maximum gas of a deployment of `creationCode`: enough for any contract below EIP-170's limit.
 */
export function create2GasLimit(creationCode: Hex): bigint {
  return 300_000n + 16n * BigInt(size(creationCode)) + 220n * BigInt(size(creationCode))
}

import { maxTimeoutSeconds } from '@tollkeeper/sdk/protocol/challenge'
import { encodePayload } from '@tollkeeper/sdk/protocol/payload'
import { type Address, concatHex, createTestClient, type Hex, http, padHex } from 'viem'
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts'
import { expect, test } from 'vitest'
import { call, fetchChallenge, sign, signedBody } from '../../../test/support/gateway.ts'
import { validFor } from '../../../test/support/usdc.ts'
import { useGateway, useShop } from '../../../test/support/useGateway.ts'

const gateway = useGateway()
const shop = useShop(gateway)

/** PUSH32 word, PUSH0, MSTORE, RETURN(0, 32) */
const answering = (word: Hex): Hex =>
  concatHex(['0x7f', padHex(word, { dir: 'right', size: 32 }), '0x5f5260205ff3'])
/** PUSH32 word, GASPRICE or TIMESTAMP, ISZERO, MUL, PUSH0, MSTORE, RETURN(0, 32) */
const onlyAtZero = (opcode: string): Hex => `0x7f1626ba7e${'0'.repeat(56)}${opcode}15025f5260205ff3`
const wallets = {
  'accepts it': answering('0x1626ba7e'),
  'refuses it': answering('0xffffffff'),
  'accepts it with extra bytes at the end of its answer': answering('0x1626ba7e01'),
  'returns nothing': '0x00',
  'burns all its gas': '0x5b5f56', // JUMPDEST, PUSH0, JUMP
  reverts: '0x5f5ffd',
  'accepts it only if the gas price is 0': onlyAtZero('3a'),
  'accepts it only if the block time is 0': onlyAtZero('42'),
} satisfies Record<string, Hex>

async function setCode(address: Address, bytecode: Hex): Promise<void> {
  const client = createTestClient({ mode: 'hardhat', transport: http(gateway.chain.url) })
  await client.setCode({ address, bytecode })
}

/**
 * Deploys a contract that owns USDC, and signs a request that the contract pays. Only the contract can check its signatures, which have `length`
 * bytes.
 */
async function contractRequest(bytecode: Hex, length: number) {
  const { address } = privateKeyToAccount(generatePrivateKey())
  await setCode(address, bytecode)
  await gateway.chain.mintUsdc([address], 1_000_000n)
  const challenge = await fetchChallenge(gateway.app, shop)
  const signature: Hex = `0x${'5a'.repeat(length)}`
  const signer = privateKeyToAccount(generatePrivateKey())
  const from = address.toLowerCase() as Address
  const window = validFor(maxTimeoutSeconds)
  const halves = await Promise.all(
    ([0, 1] as const).map((half) =>
      sign(gateway.served, signer, challenge, half, { ...window, from, signature }),
    ),
  )
  const { providerId, endpointId } = shop
  return { macaroon: challenge.macaroon, payloads: halves.map(encodePayload), providerId, endpointId }
}

test.each([65, 66, 195, 1_024])(
  'default: accepts a signature of %i bytes if the payer’s contract accepts it',
  async (length) => {
    const json = await contractRequest(wallets['accepts it'], length)
    const { status, body } = await call(gateway.app, 'POST', '/verify', { json })
    expect([status, body.verified]).toEqual([200, true])
    const rows = await gateway.database`
      select encode(signature, 'hex') as signature, encode(fee_signature, 'hex') as fee, has_code as "hasCode"
      from presentation join queue using (payment_id) where payment_id = ${String(body.paymentId)}`
    const signature = '5a'.repeat(length)
    expect([...rows]).toEqual([{ signature, fee: signature, hasCode: true }])
  },
)

const refusals = Object.entries(wallets).filter(([name]) => name !== 'accepts it')
test.each(refusals)('error: rejects the signature of a contract that %s', async (_, bytecode) => {
  const json = await contractRequest(bytecode, 65)
  const { status, body } = await call(gateway.app, 'POST', '/verify', { json })
  expect([status, body.code]).toEqual([402, 'invalid_signature'])
})

test('behavior: an account with an EIP-7702 delegation counts as a contract wallet, so the delegate’s code decides whether a signature is valid', async () => {
  for (const [name, bytecode, status] of [
    ['yes', wallets['accepts it'], 200],
    ['no', wallets['refuses it'], 402],
  ] as const) {
    const delegate = privateKeyToAccount(generatePrivateKey()).address
    await setCode(delegate, bytecode)
    const payer = await gateway.buyer(1_000_000n)
    await setCode(payer.address, concatHex(['0xef0100', delegate]))
    const json = await signedBody(gateway, shop, payer)
    expect([name, (await call(gateway.app, 'POST', '/verify', { json })).status]).toEqual([name, status])
  }
})

test('error: rejects the signature of a contract that does not answer in time', async () => {
  const json = await contractRequest(wallets['accepts it'], 65)
  // A node that answers slowly to this call.
  const { client } = gateway.served
  const slow = Object.create(client, {
    call: { value: () => new Promise(() => {}) },
  }) as typeof client
  const { isSignedByContract } = await import('@tollkeeper/chain/contractSignature')
  const { parsePayload } = await import('@tollkeeper/sdk/protocol/payload')
  const asked = isSignedByContract(
    { ...gateway.served, client: slow },
    parsePayload(json.payloads[0] as string),
    100,
  )
  await expect(asked).rejects.toMatchObject({ code: 'dependency_unavailable' })
})

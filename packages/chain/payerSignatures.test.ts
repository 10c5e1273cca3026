import {
  domainSeparator,
  eip712Domain,
  transferWithAuthorizationTypes,
} from '@tollkeeper/sdk/protocol/eip3009'
import { networks } from '@tollkeeper/sdk/protocol/networks'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { privateKeyToAccount } from 'viem/accounts'
import { expect, test } from 'vitest'
import { checkSignaturesHere, startSignatureThreads } from './payerSignatures.ts'

const domain = eip712Domain(networks.base)
const separator = domainSeparator(domain)
const onThreads = startSignatureThreads(2)
const account = privateKeyToAccount(`0x${'11'.repeat(32)}`)

async function sign(value: bigint): Promise<SignedAuthorization> {
  const authorization = {
    from: account.address.toLowerCase() as `0x${string}`,
    to: `0x${'22'.repeat(20)}`,
    value,
    validAfter: 0n,
    validBefore: 1_900_000_000n,
    nonce: `0x${'33'.repeat(32)}`,
  } as const
  const signature = await account.signTypedData({
    domain,
    types: transferWithAuthorizationTypes,
    primaryType: 'TransferWithAuthorization',
    message: authorization,
  })
  return { ...authorization, signature }
}

test.each([
  ['on the calling thread', checkSignaturesHere],
  ['on separate threads', onThreads],
])(
  'behavior: returns the right results to each request if the signatures are checked %s',
  async (_, check) => {
    const good = await Promise.all(Array.from({ length: 40 }, (_, i) => sign(BigInt(i + 1))))
    const asked = good.map((one, i): [SignedAuthorization, SignedAuthorization] => [
      i % 3 === 0 ? { ...one, value: 99n } : one, // This signature recovers to another address.
      i % 5 === 0 ? { ...one, signature: `0x${'00'.repeat(65)}` } : one, // This signature recovers to no address.
    ])
    const answers = await Promise.all(asked.map((pair) => check(separator, pair)))
    expect(answers).toEqual(asked.map((_, i) => [i % 3 !== 0, i % 5 !== 0]))
  },
)

test('behavior: checks few signatures on the calling thread, and many on separate threads', async () => {
  const one = await sign(1n)
  const other = { ...one, value: 99n }
  // A thread responds with a message, which arrives in a later turn of the event loop than the request.
  const answersOfThisTurn = async (asked: SignedAuthorization[]) => {
    const answers: (boolean[] | null)[] = asked.map(() => null)
    const all = asked.map(async (authorization, i) => {
      answers[i] = await onThreads(separator, [authorization])
    })
    await new Promise((resolve) => setImmediate(resolve))
    const soFar = [...answers]
    await Promise.all(all)
    return [soFar, answers]
  }
  expect(await answersOfThisTurn([one, other])).toEqual(Array(2).fill([[true], [false]]))
  const many = [one, other, one]
  expect(await answersOfThisTurn(many)).toEqual([
    [null, null, null],
    [[true], [false], [true]],
  ])
})

test('error: rejects signatures that are not canonical', async () => {
  const one = await sign(1n)
  const { signature } = one
  const otherParity = signature.endsWith('1b') ? '1c' : '1b'
  for (const bad of [
    `${signature}00`,
    `${signature.slice(0, -2)}00`,
    `${signature.slice(0, -2)}${otherParity}`,
  ]) {
    const asked = [{ ...one, signature: bad as `0x${string}` }, one]
    expect([bad, await checkSignaturesHere(separator, asked)]).toEqual([bad, [false, true]])
  }
})

import { checksumAddress, keccak256, toHex } from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

const buyer = privateKeyToAccount(keccak256(toHex('tollkeeper vector: buyer'))).address
const payee = privateKeyToAccount(keccak256(toHex('tollkeeper vector: provider'))).address

const base = {
  from: buyer.toLowerCase(),
  to: payee.toLowerCase(),
  value: '47500',
  validAfter: '0',
  validBefore: '1800003600',
  nonce: `0x${'0f'.repeat(32)}`,
  signature: `0x${'1a'.repeat(64)}1b`,
}
type Fields = typeof base

const join = (changes: Partial<Fields> = {}) => Object.values({ ...base, ...changes }).join(',')
const accept = (name: string, changes: Partial<Fields>, parsed: Partial<Fields> = {}) => ({
  name,
  payload: join(changes),
  authorization: { ...base, ...changes, ...parsed },
})
const refuse = (name: string, field: keyof Fields, value: string) => ({
  name,
  payload: join({ [field]: value }),
  field,
})

const wrongChecksum = (address: string) => {
  const right = checksumAddress(address as `0x${string}`)
  const at = [...right].findIndex((char, index) => index > 1 && char !== char.toLowerCase())
  return right.slice(0, at) + right.charAt(at).toLowerCase() + right.slice(at + 1)
}

/** Returns the content of `test/vectors/payloads.json`. */
export function generatePayloads() {
  const upper = (hex: string) => `0x${hex.slice(2).toUpperCase()}`
  return {
    about: 'Payment payloads: valid ones with their meaning, and invalid ones with the field that is wrong.',
    valid: [
      accept('lower-case', {}),
      accept('checksummed addresses', { from: buyer, to: payee }, { from: base.from, to: base.to }),
      accept('upper-case digits', { from: upper(buyer), to: upper(payee) }, { from: base.from, to: base.to }),
      accept(
        'upper-case nonce and signature',
        { nonce: upper(base.nonce), signature: upper(base.signature) },
        { nonce: base.nonce, signature: base.signature },
      ),
      accept('zero value and validBefore', { value: '0', validBefore: '0' }),
      accept('maximum values', {
        value: (2n ** 64n - 1n).toString(),
        validAfter: (2n ** 40n - 1n).toString(),
        validBefore: (2n ** 40n - 1n).toString(),
      }),
      accept('signature of 1,024 bytes', { signature: `0x${'ab'.repeat(1024)}` }),
      accept('signature with v 0', { signature: `0x${'1a'.repeat(64)}00` }, { signature: base.signature }),
      accept(
        'signature of 64 bytes (EIP-2098)',
        { signature: `0x${'1a'.repeat(64)}` },
        { signature: base.signature },
      ),
      accept('signature of 66 bytes', { signature: `0x${'ab'.repeat(66)}` }),
    ],
    invalid: [
      { name: 'empty', payload: '', field: null },
      { name: 'six parts', payload: join().split(',').slice(0, 6).join(','), field: null },
      { name: 'eight parts', payload: `${join()},0x`, field: null },
      { name: 'trailing comma', payload: `${join()},`, field: null },
      refuse('wrong checksum of from', 'from', wrongChecksum(buyer)),
      refuse('wrong checksum of to', 'to', wrongChecksum(payee)),
      refuse('0X prefix of an address', 'from', buyer.replace('0x', '0X')),
      refuse('0X prefix of a nonce', 'nonce', base.nonce.replace('0x', '0X')),
      refuse('0X prefix of a signature', 'signature', base.signature.replace('0x', '0X')),
      refuse('no prefix', 'to', base.to.slice(2)),
      refuse('short address', 'to', base.to.slice(0, -1)),
      refuse('long address', 'to', `${base.to}0`),
      refuse('name for an address', 'to', 'vitalik.eth'),
      refuse('negative value', 'value', '-1'),
      refuse('signed value', 'value', '+1'),
      refuse('fractional value', 'value', '1.5'),
      refuse('exponent', 'value', '1e6'),
      refuse('hex value', 'value', '0x10'),
      refuse('leading zero', 'value', '01'),
      refuse('empty value', 'value', ''),
      refuse('blank before a value', 'value', ' 1'),
      refuse('line break after a value', 'value', '1\n'),
      refuse('digits of another script', 'value', '١'),
      refuse('value of 2^64', 'value', (2n ** 64n).toString()),
      refuse('value over uint256', 'value', (2n ** 256n).toString()),
      refuse('value of a thousand digits', 'value', '9'.repeat(1000)),
      refuse('validAfter of 2^40', 'validAfter', (2n ** 40n).toString()),
      refuse('validBefore of 2^40', 'validBefore', (2n ** 40n).toString()),
      refuse('negative validBefore', 'validBefore', '-1'),
      refuse('short nonce', 'nonce', base.nonce.slice(0, -2)),
      refuse('long nonce', 'nonce', `${base.nonce}00`),
      refuse('nonce that is not hex', 'nonce', `0x${'zz'.repeat(32)}`),
      refuse('signature of 63 bytes', 'signature', `0x${'ab'.repeat(63)}`),
      refuse('64 bytes that are not a signature', 'signature', `0x${'ff'.repeat(64)}`),
      refuse('signature with an odd number of digits', 'signature', `${base.signature}0`),
      refuse('signature of 1,025 bytes', 'signature', `0x${'ab'.repeat(1025)}`),
      refuse('signature of 2,048 bytes', 'signature', `0x${'ab'.repeat(2048)}`),
      refuse('signature that is not hex', 'signature', `0x${'g0'.repeat(65)}`),
      refuse('empty signature', 'signature', '0x'),
    ],
  }
}

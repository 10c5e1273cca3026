import { concatHex, type Hex, padHex } from 'viem'

// Wallets that behave differently in a simulation, as runtime bytecode. They answer isValidSignature(hash, signature)
// without regard to its arguments.

/** PUSH32 word, PUSH0, MSTORE, RETURN(0, 32): 39 bytes */
const answer = (word: Hex): Hex =>
  concatHex(['0x7f', padHex(word, { dir: 'right', size: 32 }), '0x5f5260205ff3'])
const yes = answer('0x1626ba7e')
const no = answer('0xffffffff')

/** Returns code that runs `then` if the condition's code leaves a nonzero value on the stack, and `otherwise` if not. */
function choose(condition: Hex, then: Hex, otherwise: Hex): Hex {
  const jump = (condition.length - 2) / 2 + 3 + (otherwise.length - 2) / 2
  // condition, PUSH1 jump, JUMPI, otherwise, JUMPDEST, then
  return concatHex([
    condition,
    '0x60',
    `0x${jump.toString(16).padStart(2, '0')}`,
    '0x57',
    otherwise,
    '0x5b',
    then,
  ])
}

/** An honest contract wallet. */
export const honestWallet: Hex = yes

/** PUSH0, SLOAD, ISZERO, PUSH0, SSTORE, STOP */
const toggle: Hex = '0x5f54155f5500'
const storedAnswer = concatHex([
  // CALLDATASIZE, PUSH1 11, JUMPI, toggle (6 bytes), STOP, JUMPDEST
  '0x36600b57',
  toggle,
  '0x00',
  '0x5b',
  // PUSH0, SLOAD, PUSH1 56, JUMPI, yes (39 bytes), JUMPDEST, no
  '0x5f54603857',
  yes,
  '0x5b',
  no,
])

export const lyingWallets = {
  /** Valid only if gas costs nothing, which is the default in eth_call: GASPRICE */
  'gas price': choose('0x3a', no, yes),
  /** Valid only if there is no base fee, as in every eth_call on the dev chain: BASEFEE */
  'base fee': choose('0x48', no, yes),
  /** Valid only in odd seconds: PUSH1 1, TIMESTAMP, AND */
  time: choose('0x60014216', yes, no),
  /** Valid only in odd blocks: PUSH1 1, NUMBER, AND */
  'block number': choose('0x60014316', yes, no),
  /** Valid only if the call has no sender, which is the default in eth_call: ORIGIN */
  'transaction origin': choose('0x32', no, yes),
  /** Valid while slot 0 is 0. A call without data toggles the slot, in the same block as the batch. */
  storage: storedAnswer,
} satisfies Record<string, Hex>

export type Lie = keyof typeof lyingWallets

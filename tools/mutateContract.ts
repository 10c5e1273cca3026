/**
 * `npm run mutate:contracts [-- <number> …]`: breaks the contracts in one place at a time, in a copy of the project, and checks that
 * the Solidity tests notice each time. It proves what coverage can't: that every branch's outcome is asserted.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** A call's gas, as the contract writes it. */
const cap = 'mload(add(run, RUN_CALL_GAS))'

/** What `settle` and `settleAuthorizations` both do; what follows tells which of them is meant. */
const failed =
  '\n                    emit AuthorizationFailed(batch.batchId, _from(run), run.nonce, i, run.reason);'

/** One mutation: a piece of source that occurs exactly once, and its replacement. */
const mutants: readonly (readonly [original: string, mutated: string])[] = [
  ['if (batch.token.code.length == 0) revert InvalidToken(batch.token);', ''],
  [
    'payment.values >> 128;\n                uint256 fee',
    'payment.values >> 127;\n                uint256 fee',
  ],
  ['uint256 fee = uint128(payment.values);', 'uint256 fee = uint64(payment.values);'],
  ['++authorizations;\n                    providerTotal', 'providerTotal'],
  ['providerTotal += amount;', 'providerTotal += 1;'],
  [
    'amount;\n                } else if (outcome == NOT_TRIED) {\n                    break;',
    'amount;\n                } else if (outcome == NOT_TRIED) {',
  ],
  [
    `} else if (outcome == FAILED) {${failed}\n                }\n\n                // Skipped`,
    `} else if (outcome == USED) {${failed}\n                }\n\n                // Skipped`,
  ],
  ['if (fee != 0) {', 'if (true) {'],
  ['if (fee != 0) {', 'if (fee != 0 && outcome == SETTLED) {'],
  ['feeTotal += fee;', 'feeTotal += amount;'],
  ['} else if (feeOutcome == FAILED) {', '} else if (feeOutcome == USED) {'],
  ['or(shl(4, outcome), feeOutcome)', 'or(shl(4, feeOutcome), outcome)'],
  ['payment := add(payment, PAYMENT_SIZE)', 'payment := add(payment, 0xe0)'],
  ['revert InvalidToken(batch.token);', 'revert InvalidToken(batch.feeRecipient);'],
  ['revert InvalidPayee(payeeIndex);', 'revert InvalidPayee(payees.length);'],
  ['revert InvalidSignatureIndex(uint256(r));', 'revert InvalidSignatureIndex(signatures.length);'],
  ['RUN_CALL_GAS = 0x20', 'RUN_CALL_GAS = 0x40'],
  ['RUN_NONCE = 0x100', 'RUN_NONCE = 0x120'],
  ['TRANSFER_SIZE = 0x124', 'TRANSFER_SIZE = 0x104'],
  ['if (authorizations == 0) revert NothingSettled(outcomes);', ''],
  [
    'batch.batchId, msg.sender, batch.token, batch.trigger',
    'batch.batchId, tx.origin, batch.token, batch.trigger',
  ],
  ['? MIN_CALL_GAS : batch.callGasLimit;', '? batch.callGasLimit : batch.callGasLimit;'],
  ['run.callGas * 64 / 63 + TAIL_GAS', 'run.callGas / 2 + TAIL_GAS'],
  ['TAIL_GAS + OUTCOME_GAS * count;', 'OUTCOME_GAS * count;'],
  ['TAIL_GAS = 60_000', 'TAIL_GAS = 0'],
  ['run.probing = true;\n        run.refused', 'run.probing = false;\n        run.refused'],
  ['run.refused = type(uint256).max;', ''],
  ['if (payeeIndex >= payees.length) revert', 'if (payeeIndex > payees.length) revert'],
  ['shl(5, payeeIndex)', 'shl(6, payeeIndex)'],
  ['run.to = uint160(to);', 'run.to = to;'],
  ['run.validAfter = uint40(head >> 40);', 'run.validAfter = uint40(head >> 80);'],
  ['run.validAfter = uint40(head >> 40);', 'run.validAfter = uint32(head >> 40);'],
  ['run.validBefore = uint40(head);', 'run.validBefore = uint32(head);'],
  ['run.validBefore = uint40(head);', 'run.validBefore = uint80(head);'],
  [
    'bytes32 nonce = payment.feeNonce;\n        if (nonce == 0)',
    'bytes32 nonce = payment.feeNonce;\n        if (true)',
  ],
  ['nonce := keccak256(0, WORD)', 'nonce := keccak256(0, 0x40)'],
  ['run.to = uint160(run.feeRecipient);', ''],
  ['if (gasleft() < run.neededGas) return NOT_TRIED;\n            if (run.from', 'if (run.from'],
  ['if (run.from == run.refused) return SKIPPED;', ''],
  ['if (run.from == run.refused) return SKIPPED;', 'if (run.from == run.refused) return NOT_TRIED;'],
  ['if (_isUsed(run)) return USED;\n            run', 'if (_isUsed(run)) return SETTLED;\n            run'],
  ['run.probing = false;\n        }\n        bool', '}\n        bool'],
  ['uint256(vs) << 1 >> 1', 'uint256(vs)'],
  ['run.v = 27 + (uint256(vs) >> 255);', 'run.v = 27;'],
  ['run.v = 27 + (uint256(vs) >> 255);', 'run.v = 28;'],
  ['run.s = s;\n            if (gasleft() < run.neededGas) return NOT_TRIED;', 'run.s = s;'],
  [
    'signatures[uint256(r)]);\n            if (gasleft() < run.neededGas) return NOT_TRIED;',
    'signatures[uint256(r)]);',
  ],
  [
    `call(\n                    ${cap}, mload(add(run, RUN_TOKEN)), 0, add(run`,
    'call(\n                    gas(), mload(add(run, RUN_TOKEN)), 0, add(run',
  ],
  [
    `call(\n                    ${cap}, mload(add(run, RUN_TOKEN)), 0, add(data`,
    'call(\n                    gas(), mload(add(run, RUN_TOKEN)), 0, add(data',
  ],
  ['if (uint256(r) >= signatures.length) revert', 'if (uint256(r) > signatures.length) revert'],
  ['run.reason = Reason.read();', ''],
  ['run.probing = true;\n        if', 'run.probing = false;\n        if'],
  ['if (_isUsed(run)) return USED;\n        run', 'run'],
  ['run.refused = run.from;', ''],
  ['eq(mload(0), 1)', 'gt(mload(0), 0)'],
  ['if gt(size, MAX_SIZE) { size := MAX_SIZE }', ''],
  ['mstore(0x40, add(reason, MEMORY))', ''],
  // settleAuthorizations
  ['++settled;', ''],
  ['total += value;', 'total += 1;'],
  [
    'value;\n                } else if (outcome == NOT_TRIED) {\n                    break;',
    'value;\n                } else if (outcome == NOT_TRIED) {',
  ],
  [
    `} else if (outcome == FAILED) {${failed}\n                }\n\n                assembly ("memory-safe") {\n                    mstore8(add(add(outcomes, WORD), i), shl`,
    `} else if (outcome == USED) {${failed}\n                }\n\n                assembly ("memory-safe") {\n                    mstore8(add(add(outcomes, WORD), i), shl`,
  ],
  ['i), shl(4, outcome))', 'i), outcome)'],
  ['AUTHORIZATION_SIZE = 0xa0', 'AUTHORIZATION_SIZE = 0x80'],
  ['(value, authorization.nonce)', '(uint128(value), authorization.nonce)'],
  ['if (sweep.splits.length != 0) {', 'if (true) {'],
  ['run.neededGas += sweepGas;', ''],
  ['pop(call(gasLimit, factory', 'pop(call(gas(), factory'],
  // Splitter
  ['ARGUMENTS = 0x2d', 'ARGUMENTS = 0x2e'],
  ['providerShare = uint48(split >> 48);', 'providerShare = uint32(split >> 48);'],
  ['platformShare = uint48(split);', 'platformShare = uint32(split);'],
  ['platform := shr(96, mload(0x20))', 'platform := mload(0x20)'],
  ['/ (providerShare + platformShare);', '/ providerShare;'],
  ['if (balance == 0) return;', ''],
  ['if (toPlatform != 0 && !', 'if (!'],
  ['if (toPlatform != balance) ', ''],
  ['IERC20(token).safeTransfer(_platformSplitter(platform), toPlatform);', ''],
  ['1 << 48, platform)', '1 << 48, address(0))'],
  ['IERC20(token).safeTransfer(provider', 'IERC20(token).trySafeTransfer(provider'],
  // SplitterFactory
  ['if (splitter.code.length == 0) _deploy', '_deploy'],
  ['if (IERC20(token).balanceOf(splitter) == 0) continue;', ''],
  ['if (!success) emit', 'if (success) emit'],
  ['call(gas(), splitter', 'call(100000, splitter'],
]

/** The files and folders that the tests need. */
const copied = [
  ...['contracts', 'hardhat.config.ts', 'package.json', 'tsconfig.json', 'sdk/src', 'test/vectors'],
  ...['snapshots', '.gas-snapshot'],
]

const root = join(import.meta.dirname, '..')
const copy = mkdtempSync(join(tmpdir(), 'mutants-'))
const contracts = ['BatchSettlement', 'Reason', 'Splitter', 'SplitterFactory']
const sourceOf = (name: string) => join(copy, `contracts/${name}.sol`)

/** Runs the tests with few fuzz runs; for mutations that only cost gas, also compares the committed gas numbers. */
function test(): boolean {
  const quick = ['test', 'solidity', '--test-profile', 'quick']
  const files = ['contracts/test/Gas.t.sol', 'contracts/test/SplitterGas.t.sol']
  const gas = [...files, '--snapshot-check', '--tolerance', '1']
  return run([...quick, '--grep-exclude', 'test_gas_']) && run([...quick, ...gas])
}

function run(args: string[]): boolean {
  return spawnSync('hardhat', args, { cwd: copy, stdio: 'ignore' }).status === 0
}

try {
  for (const path of copied) cpSync(join(root, path), join(copy, path), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))

  const originals = new Map(contracts.map((name) => [name, readFileSync(sourceOf(name), 'utf8')]))
  if (!test()) throw new Error('the tests fail before anything is broken')
  const survivors: string[] = []
  const wanted = new Set(process.argv.slice(2).map(Number))
  for (const [index, [piece, mutated]] of mutants.entries()) {
    if (wanted.size > 0 && !wanted.has(index + 1)) continue
    const [found, ...others] = [...originals].filter(([, text]) => text.includes(piece))
    if (found === undefined || others.length > 0 || found[1].split(piece).length !== 2)
      throw new Error(`there must be one of this in the contracts: ${piece}`)
    const [name, original] = found
    writeFileSync(
      sourceOf(name),
      original.replace(piece, () => mutated),
    )
    const survived = test()
    writeFileSync(sourceOf(name), original)
    if (survived) survivors.push(`${piece}\n  → ${mutated}`)
    console.log(
      `${index + 1}/${mutants.length} ${survived ? 'SURVIVED' : 'caught'}: ${mutated.trim().split('\n')[0] || `without ${piece}`}`,
    )
  }
  const tried = wanted.size || mutants.length
  console.log(`${tried - survivors.length} of ${tried} mutants were caught`)
  for (const survivor of survivors) console.error(`survived: ${survivor}`)
  if (survivors.length > 0) process.exitCode = 1
} finally {
  rmSync(copy, { recursive: true })
}

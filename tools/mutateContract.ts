/**
 * `npm run mutate:contracts [-- <contract or number> …]`, or `-- --sample N`: breaks the contracts in one place at a time, in a copy of
 * the project, and checks that the Solidity tests notice each time. It proves what coverage can't: that every branch's outcome is asserted.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** The expression for a call's gas in the contract's source. */
const cap = 'mload(add(run, RUN_CALL_GAS))'

/**
 * A statement that occurs in both `settle` and `settleAuthorizations`. A mutant also contains the text that follows it, to select one of the two
 * places.
 */
const failed =
  '\n                    emit AuthorizationFailed(batch.batchId, _from(run), run.nonce, i, run.reason);'

/** A piece of source that occurs exactly once in its contract, and its replacement. */
type Mutant = readonly [original: string, mutated: string]

const mutants: Readonly<Record<string, readonly Mutant[]>> = {
  BatchSettlement: [
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
    ['if (authorizations == 0) revert NothingSettled(outcomes);', ''],
    [
      'batch.batchId, msg.sender, batch.token, batch.trigger',
      'batch.batchId, tx.origin, batch.token, batch.trigger',
    ],
    ['? MIN_CALL_GAS : batch.callGasLimit;', '? batch.callGasLimit : batch.callGasLimit;'],
    ['run.callGas * 64 / 63 + TAIL_GAS', 'run.callGas / 2 + TAIL_GAS'],
    ['TAIL_GAS + OUTCOME_GAS * count;', 'OUTCOME_GAS * count;'],
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
  ],
  AuthorizationCalls: [
    ['InvalidSignatureIndex(uint256(r));', 'InvalidSignatureIndex(signatures.length);'],
    ['RUN_CALL_GAS = 0x20', 'RUN_CALL_GAS = 0x40'],
    ['RUN_NONCE = 0x100', 'RUN_NONCE = 0x120'],
    ['TRANSFER_SIZE = 0x124', 'TRANSFER_SIZE = 0x104'],
    ['TAIL_GAS = 60_000', 'TAIL_GAS = 0'],
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
  ],
  Reason: [
    ['if gt(size, MAX_SIZE) { size := MAX_SIZE }', ''],
    ['mstore(0x40, add(reason, MEMORY))', ''],
  ],
  Splitter: [
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
  ],
  SplitterFactory: [
    ['if (splitter.code.length == 0) _deploy', '_deploy'],
    ['if (IERC20(token).balanceOf(splitter) == 0) continue;', ''],
    ['if (!success) emit', 'if (success) emit'],
    ['call(gas(), splitter', 'call(100000, splitter'],
  ],
  TabSettlement: [
    ['TAB_GAS = 500', 'TAB_GAS = 0'],
    ['LINE_GAS = 250', 'LINE_GAS = 0'],
    ['PAYOUT_GAS = 55_000', 'PAYOUT_GAS = 10_000'],
    ['_atLeast(batch.tabGas, MIN_TAB_GAS)', 'MIN_TAB_GAS'],
    ['_atLeast(batch.lineGas, MIN_LINE_GAS)', 'MIN_LINE_GAS'],
    ['_atLeast(batch.payoutGas, MIN_PAYOUT_GAS)', 'MIN_PAYOUT_GAS'],
    ['asked < floor ? floor : asked', 'asked'],
    ['mstore(add(words, 0x20), nonce)', ''],
    ['mstore(add(words, 0x40), payer)', ''],
    ['head >> 96 << 96 | block.chainid', 'head >> 96 << 96'],
    ['head >> 96 << 96 | block.chainid', 'block.chainid'],
    ['batch.feeRecipient, batch.rewardShare, splits', 'msg.sender, batch.rewardShare, splits'],
    ['batch.feeRecipient, batch.rewardShare, splits', 'batch.feeRecipient, 0, splits'],
    ['REFUGES = 2', 'REFUGES = 1'],
    ['revert PayeeRefused(account);', ''],
    ['revert PayeeRefused(account);', 'revert PayeeRefused(to);'],
    ['LINE_SIZE = 8', 'LINE_SIZE = 16'],
    ['HEAD_SIZE = 7', 'HEAD_SIZE = 8'],
    ['SPLITTER_FACTORY = splitterFactory;', 'SPLITTER_FACTORY = ISplitterFactory(msg.sender);'],
    ['if (block.timestamp < uint40(head)) {', 'if (block.timestamp <= uint40(head)) {'],
    ['if (block.timestamp < uint40(head)) {', 'if (block.timestamp < uint56(head)) {'],
    ['if (block.timestamp < uint40(head)) {', 'if (true) {'],
    ['uint256 outcome = EXPIRED;', 'uint256 outcome = SKIPPED;'],
    ['_takeOut(due, splits, lines[position:]);', ''],
    ['_takeOut(due, splits, lines[position:]);', '_takeOut(due, splits, lines);'],
    ['lines[position:]);\n                        break;', 'lines[position:]);'],
    ['position += own.length;\n                if (outcome', 'if (outcome'],
    ['++authorizations;', ''],
    ['settledSize = _append(', '_append('],
    ['_takeOut(due, splits, own);', ''],
    ['if (outcome == FAILED) {', 'if (outcome == USED) {'],
    ['shl(4, outcome))', 'outcome)'],
    ['if (authorizations == 0) revert IBatchSettlement.NothingSettled(outcomes);', ''],
    ['mstore(settledLines, settledSize)', ''],
    ['batch.batchId,\n            msg.sender', 'batch.batchId,\n            tx.origin'],
    ['authorizations,\n            providerTotal', 'tabs.length,\n            providerTotal'],
    ['providerTotal,\n            platformTotal', 'platformTotal,\n            providerTotal'],
    ['if (batch.token.code.length == 0) revert', 'if (batch.token == address(0)) revert'],
    ['if (batch.rewardShare > BASIS_POINTS)', 'if (batch.rewardShare >= BASIS_POINTS)'],
    ['if (batch.rewardShare > BASIS_POINTS) revert InvalidRewardShare(batch.rewardShare);', ''],
    ['_atLeast(batch.callGasLimit, MIN_CALL_GAS)', 'batch.callGasLimit'],
    ['run.callGas * 64 / 63 +', 'run.callGas / 2 +'],
    ['64 / 63 + TAIL_GAS +', '64 / 63 +'],
    ['MIN_PAYOUT_GAS) * (splitCount + 2)', 'MIN_PAYOUT_GAS) * 2'],
    ['run.to = uint160(address(this));', 'run.to = uint160(msg.sender);'],
    ['run.probing = true;', ''],
    ['run.refused = type(uint256).max;', ''],
    ['uint256(batch.rewardShare) << 40;', 'uint256(batch.rewardShare) << 48;'],
    ['uint256(uint160(batch.feeRecipient)) << 96 |', ''],
    ['if (position > lines.length) revert InvalidLines(lines.length);', ''],
    ['if (position != lines.length) revert InvalidLines(lines.length);', ''],
    ['terms | uint40(head >> 40)', 'terms | uint32(head >> 40)'],
    ['terms | uint40(head >> 40)', 'terms'],
    ['commitment >> 40 << 40 | uint40(head);', 'commitment >> 40 << 40 | uint32(head);'],
    ['commitment >> 40 << 40 | uint40(head);', 'commitment | uint40(head);'],
    ['and(shr(80, head), 0xffff)', 'and(shr(80, head), 0xff)'],
    ['if iszero(lt(index, splits.length)) {', 'if gt(index, splits.length) {'],
    ['if (isUnknown) revert InvalidSplit(index);', ''],
    ['revert InvalidSplit(index);', 'revert InvalidSplit(splits.length);'],
    ['word := add(word, 0x40)', 'word := add(word, 0x20)'],
    ['value := add(value, amount)', 'value := amount'],
    [
      'mstore(slot, add(mload(slot), or(shl(128, amount), part)))',
      'mstore(slot, or(shl(128, amount), part))',
    ],
    ['keccak256(words, sub(word, words))', 'keccak256(add(words, WORD), sub(word, add(words, WORD)))'],
    ['TERMS_SIZE = 0x60', 'TERMS_SIZE = 0x80'],
    [
      'mstore(slot, sub(mload(slot), or(shl(128, amount), part)))',
      'mstore(slot, sub(mload(slot), shl(128, amount)))',
    ],
    ['mstore(to, shl(200, shr(40, head)))', 'mstore(to, shl(192, shr(40, head)))'],
    ['newSize := add(add(size, HEAD_SIZE), own.length)', 'newSize := add(size, own.length)'],
    ['if (next != provider) {', 'if (true) {'],
    ['_pay(batch.token, provider, providerDue);\n                (', '('],
    ['_pay(batch.token, provider, providerDue);\n        uint256 reward', 'uint256 reward'],
    ['providerDue += rest;', 'providerDue = rest;'],
    ['batch.rewardShare / BASIS_POINTS;', 'batch.rewardShare / (BASIS_POINTS - 1);'],
    ['trySafeTransfer(msg.sender, reward)) reward = 0;', 'trySafeTransfer(msg.sender, reward)) reward = 1;'],
    ['if (reward != 0 && !', 'if (!'],
    ['trySafeTransfer(msg.sender', 'trySafeTransfer(tx.origin'],
    ['if (amount == 0 || IERC20', 'if (IERC20'],
    [
      'splitterOf(uint256(uint160(to)) << 96 | 1 << 48, to)',
      'splitterOf(uint256(uint160(to)) << 96 | 1, to)',
    ],
    ['1 << 48, to);', '1 << 48, address(this));'],
    ['1 << 48, to);', '1 << 48, account);'],
    ['return IERC3009Bytes.receiveWithAuthorization', 'return IERC3009Bytes.transferWithAuthorization'],
  ],
}

/** The files and folders that the tests need. */
const copied = [
  ...['contracts', 'hardhat.config.ts', 'package.json', 'tsconfig.json', 'sdk/src', 'test/vectors'],
  ...['snapshots', '.gas-snapshot'],
]

const root = join(import.meta.dirname, '..')
const copy = mkdtempSync(join(tmpdir(), 'mutants-'))
const sourceOf = (name: string) => join(copy, `contracts/${name}.sol`)

/**
 * Runs the tests with few fuzz runs, and compares the gas with the committed numbers, to catch mutants that only cost gas. For TabSettlement, runs
 * only its own tests, because no other test uses it.
 */
function test(contract?: string): boolean {
  const quick = ['test', 'solidity', '--test-profile', 'quick']
  const files = readdirSync(join(copy, 'contracts/test')).filter((name) => name.endsWith('.t.sol'))
  const concerned = contract === 'TabSettlement' ? files.filter((name) => name.startsWith('Tab')) : files
  const [gas, others] = [true, false].map((isGas) =>
    concerned.filter((name) => name.endsWith('Gas.t.sol') === isGas).map((name) => `contracts/test/${name}`),
  )
  return (
    run([...quick, ...(others ?? [])]) &&
    run([...quick, ...(gas ?? []), '--snapshot-check', '--tolerance', '1'])
  )
}

/**
 * Returns whether to try a mutant. Without arguments, all mutants are tried. With names or numbers, only the named mutants are tried. With `--sample
 * N`, N mutants are tried that are evenly spread over the list, and every run with this N tries the same ones.
 */
function isWanted(index: number, name: string, count: number): boolean {
  const asked = process.argv.slice(2)
  if (asked[0] !== '--sample') {
    return asked.length === 0 || asked.includes(name) || asked.includes(`${index + 1}`)
  }
  const size = Number(asked[1])
  if (!(size > 0)) throw new Error(`--sample: expected a number of mutants, got "${asked[1]}"`)
  return Math.floor(((index + 1) * size) / count) > Math.floor((index * size) / count)
}

function run(args: string[]): boolean {
  return spawnSync('hardhat', args, { cwd: copy, stdio: 'ignore' }).status === 0
}

try {
  for (const path of copied) cpSync(join(root, path), join(copy, path), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))

  const all = Object.entries(mutants).flatMap(([name, list]) => list.map((mutant) => ({ name, mutant })))
  const wanted = [...all.entries()].filter(([index, { name }]) => isWanted(index, name, all.length))
  const [only, ...others] = new Set(wanted.map(([, { name }]) => name))
  if (!test(others.length > 0 ? undefined : only)) throw new Error('the tests fail without any mutant')
  const survivors: string[] = []
  for (const [index, { name, mutant }] of wanted) {
    const [piece, mutated] = mutant
    const original = readFileSync(sourceOf(name), 'utf8')
    if (original.split(piece).length !== 2)
      throw new Error(`a mutant's text must occur exactly once in ${name}: ${piece}`)
    writeFileSync(
      sourceOf(name),
      original.replace(piece, () => mutated),
    )
    const survived = test(name)
    writeFileSync(sourceOf(name), original)
    if (survived) survivors.push(`${piece}\n  → ${mutated}`)
    console.log(
      `${index + 1}/${all.length} ${survived ? 'SURVIVED' : 'caught'}: ${mutated.trim().split('\n')[0] || `without ${piece}`}`,
    )
  }
  console.log(`${wanted.length - survivors.length} of ${wanted.length} mutants were caught`)
  for (const survivor of survivors) console.error(`survived: ${survivor}`)
  if (survivors.length > 0) process.exitCode = 1
} finally {
  rmSync(copy, { recursive: true })
}

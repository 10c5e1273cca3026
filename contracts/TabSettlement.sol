// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC3009} from "@openzeppelin/contracts/interfaces/draft-IERC3009.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {AuthorizationCalls} from "./AuthorizationCalls.sol";
import {IBatchSettlement} from "./interfaces/IBatchSettlement.sol";
import {IERC3009Bytes} from "./interfaces/IERC3009Bytes.sol";
import {ISplitterFactory} from "./interfaces/ISplitterFactory.sol";
import {ITabSettlement} from "./interfaces/ITabSettlement.sol";

/// @title TabSettlement
/// @notice See ITabSettlement, which documents every function, event and error.
contract TabSettlement is ITabSettlement, AuthorizationCalls {
    using SafeERC20 for IERC20;

    /// @inheritdoc ITabSettlement
    uint256 public constant MIN_CALL_GAS = LEAST_CALL_GAS;
    /// @inheritdoc ITabSettlement
    ISplitterFactory public immutable SPLITTER_FACTORY;

    /// @inheritdoc ITabSettlement
    uint256 public constant MIN_TAB_GAS = 500;
    /// @inheritdoc ITabSettlement
    uint256 public constant MIN_LINE_GAS = 250;
    /// @inheritdoc ITabSettlement
    uint256 public constant MIN_PAYOUT_GAS = 55_000;

    uint256 private constant EXPIRED = 5;
    /// Number of splitters that are tried after the recipient: the one that pays only the recipient, then the one that
    /// pays only that splitter.
    uint256 private constant REFUGES = 2;
    uint256 private constant BASIS_POINTS = 10_000;

    /// Size of the words that the commitment hashes before the lines.
    uint256 internal constant TERMS_SIZE = 0x60;
    /// Sizes in bytes: of a line in calldata, and of the head that precedes each tab's lines in `TabsSettled`.
    uint256 internal constant LINE_SIZE = 8;
    uint256 internal constant HEAD_SIZE = 7;
    uint256 private constant UINT48 = 0xffffffffffff;

    constructor(ISplitterFactory splitterFactory) {
        SPLITTER_FACTORY = splitterFactory;
    }

    /// @inheritdoc ITabSettlement
    function settle(
        Batch calldata batch,
        uint256[] calldata splits,
        Tab[] calldata tabs,
        bytes calldata lines,
        bytes[] calldata signatures
    ) external returns (bytes memory outcomes) {
        Run memory run = _start(batch, splits.length, tabs.length, lines.length);
        // Validate all lines before the first external call: a malformed line must not revert tabs that have already
        // settled.
        (uint256[] memory values, uint256[] memory validBefores, uint256[] memory due) =
            _readTabs(batch, splits, tabs, lines);
        outcomes = new bytes(tabs.length);
        // One word longer than needed, because each tab's head is written as a whole word.
        bytes memory settledLines = new bytes(lines.length + HEAD_SIZE * tabs.length + WORD);
        uint256 settledSize;
        uint256 authorizations;
        uint256 position;

        // Nothing here can overflow: these are positions in calldata.
        unchecked {
            for (uint256 i; i < tabs.length; ++i) {
                Tab calldata tab = tabs[i];
                uint256 head = tab.head;
                uint256 outcome = EXPIRED;
                if (block.timestamp < uint40(head)) {
                    (run.from, run.value) = (head >> 96, values[i]);
                    (run.validBefore, run.nonce) = (validBefores[i], tab.nonce);
                    outcome = _attempt(run, tab.r, tab.vs, signatures);
                    if (outcome == NOT_TRIED) {
                        _takeOut(due, splits, lines[position:]);
                        break;
                    }
                }
                bytes calldata own = _linesOf(lines, position, head);
                position += own.length;
                if (outcome == SETTLED) {
                    ++authorizations;
                    settledSize = _append(settledLines, settledSize, head, own);
                } else {
                    _takeOut(due, splits, own);
                    if (outcome == FAILED) {
                        emit IBatchSettlement.AuthorizationFailed(batch.batchId, _from(run), run.nonce, i, run.reason);
                    }
                }
                assembly ("memory-safe") {
                    mstore8(add(add(outcomes, WORD), i), shl(4, outcome))
                }
            }
        }

        if (authorizations == 0) revert IBatchSettlement.NothingSettled(outcomes);
        assembly ("memory-safe") {
            mstore(settledLines, settledSize)
        }
        emit TabsSettled(batch.batchId, batch.feeRecipient, batch.rewardShare, splits, settledLines);
        (uint256 providerTotal, uint256 platformTotal) = _payOut(batch, splits, due);
        emit IBatchSettlement.BatchSettled(
            batch.batchId,
            msg.sender,
            batch.token,
            batch.trigger,
            authorizations,
            providerTotal,
            platformTotal,
            outcomes
        );
    }

    function _start(Batch calldata batch, uint256 splitCount, uint256 tabCount, uint256 linesLength)
        private
        view
        returns (Run memory run)
    {
        // A call to an address without code succeeds, so a batch without a token would seem to settle.
        if (batch.token.code.length == 0) revert IBatchSettlement.InvalidToken(batch.token);
        if (batch.rewardShare > BASIS_POINTS) revert InvalidRewardShare(batch.rewardShare);
        run.token = batch.token;
        run.callGas = _atLeast(batch.callGasLimit, MIN_CALL_GAS);
        // EIP-150: a call gets at most 63/64 of what is left. In addition to a payout for each split, there are two
        // more: the platform's and the caller's.
        run.neededGas = run.callGas * 64 / 63 + TAIL_GAS + _atLeast(batch.tabGas, MIN_TAB_GAS) * tabCount
            + _atLeast(batch.lineGas, MIN_LINE_GAS) * (linesLength / LINE_SIZE)
            + _atLeast(batch.payoutGas, MIN_PAYOUT_GAS) * (splitCount + 2);
        run.selector = uint32(IERC3009.receiveWithAuthorization.selector);
        run.to = uint160(address(this));
        run.probing = true;
        run.refused = type(uint256).max;
    }

    function _atLeast(uint256 asked, uint256 floor) private pure returns (uint256) {
        return asked < floor ? floor : asked;
    }

    /// Returns the `value` and `validBefore` that follow from each tab's lines. The token accepts the payer's signature
    /// only if the payer signed these lines. Also returns, for each split, the amount due if all tabs settle:
    /// `amount << 128 | the platform's part of it`.
    function _readTabs(Batch calldata batch, uint256[] calldata splits, Tab[] calldata tabs, bytes calldata lines)
        private
        view
        returns (uint256[] memory values, uint256[] memory validBefores, uint256[] memory due)
    {
        values = new uint256[](tabs.length);
        validBefores = new uint256[](tabs.length);
        due = new uint256[](splits.length);
        uint256 terms = uint256(uint160(batch.feeRecipient)) << 96 | uint256(batch.rewardShare) << 40;
        uint256 position;
        // Nothing here can overflow: these are positions in calldata.
        unchecked {
            for (uint256 i; i < tabs.length; ++i) {
                Tab calldata tab = tabs[i];
                uint256 head = tab.head;
                bytes calldata own = _linesOf(lines, position, head);
                position += own.length;
                if (position > lines.length) revert InvalidLines(lines.length);
                (uint256 value, uint256 commitment) = _readLines(
                    terms | uint40(head >> 40), tab.nonce, head >> 96 << 96 | block.chainid, due, splits, own
                );
                values[i] = value;
                validBefores[i] = commitment >> 40 << 40 | uint40(head);
            }
        }
        if (position != lines.length) revert InvalidLines(lines.length);
    }

    /// Returns the lines of the tab with this head. They may extend past the end of `lines`, which the caller checks.
    function _linesOf(bytes calldata lines, uint256 position, uint256 head) private pure returns (bytes calldata own) {
        assembly ("memory-safe") {
            own.offset := add(lines.offset, position)
            own.length := mul(and(shr(80, head), 0xffff), LINE_SIZE)
        }
    }

    /// Returns the sum of a tab's lines, and the commitment: the hash of the words `terms`, `nonce` and `payer` and of
    /// the lines. Also adds the lines to `due`.
    function _readLines(
        uint256 terms,
        bytes32 nonce,
        uint256 payer,
        uint256[] memory due,
        uint256[] calldata splits,
        bytes calldata own
    ) private pure returns (uint256 value, uint256 commitment) {
        uint256 index;
        bool isUnknown;
        assembly ("memory-safe") {
            // Writes the words after the end of allocated memory without allocating them: they aren't needed after the
            // hash.
            let words := mload(0x40)
            mstore(words, terms)
            mstore(add(words, 0x20), nonce)
            mstore(add(words, 0x40), payer)
            let word := add(words, TERMS_SIZE)
            let at := own.offset
            let end := add(at, own.length)
            for {} lt(at, end) { at := add(at, LINE_SIZE) } {
                let line := calldataload(at)
                index := shr(240, line)
                if iszero(lt(index, splits.length)) { break }
                let amount := and(shr(192, line), UINT48)
                let split := calldataload(add(splits.offset, shl(5, index)))
                mstore(word, split)
                mstore(add(word, WORD), amount)
                word := add(word, 0x40)
                value := add(value, amount)
                let share := and(split, UINT48)
                // In the EVM x / 0 is 0, so a split without shares doesn't revert the batch.
                let part := div(mul(amount, share), add(and(shr(48, split), UINT48), share))
                let slot := add(add(due, WORD), shl(5, index))
                mstore(slot, add(mload(slot), or(shl(128, amount), part)))
            }
            isUnknown := lt(at, end)
            // Read the pointer again: a variable that lives through the loop costs gas for each line.
            words := mload(0x40)
            commitment := keccak256(words, sub(word, words))
        }
        if (isUnknown) revert InvalidSplit(index);
    }

    /// Subtracts from `due` what `_readLines` added for these lines.
    function _takeOut(uint256[] memory due, uint256[] calldata splits, bytes calldata own) private pure {
        assembly ("memory-safe") {
            let end := add(own.offset, own.length)
            for { let at := own.offset } lt(at, end) { at := add(at, LINE_SIZE) } {
                let line := calldataload(at)
                let index := shr(240, line)
                let amount := and(shr(192, line), UINT48)
                let split := calldataload(add(splits.offset, shl(5, index)))
                let share := and(split, UINT48)
                let part := div(mul(amount, share), add(and(shr(48, split), UINT48), share))
                let slot := add(add(due, WORD), shl(5, index))
                mstore(slot, sub(mload(slot), or(shl(128, amount), part)))
            }
        }
    }

    /// Appends a settled tab to the `size` bytes of earlier ones, in the encoding of TabsSettled.
    function _append(bytes memory lines, uint256 size, uint256 head, bytes calldata own)
        private
        pure
        returns (uint256 newSize)
    {
        assembly ("memory-safe") {
            let to := add(add(lines, WORD), size)
            // The number of lines and the sequence are the 7 bytes of the head above the expiry.
            mstore(to, shl(200, shr(40, head)))
            calldatacopy(add(to, HEAD_SIZE), own.offset, own.length)
            newSize := add(add(size, HEAD_SIZE), own.length)
        }
    }

    function _payOut(Batch calldata batch, uint256[] calldata splits, uint256[] memory due)
        private
        returns (uint256 providerTotal, uint256 platformTotal)
    {
        address provider;
        uint256 providerDue;
        for (uint256 i; i < splits.length; ++i) {
            address next = address(uint160(splits[i] >> 96));
            if (next != provider) {
                _pay(batch.token, provider, providerDue);
                (provider, providerDue) = (next, 0);
            }
            uint256 part = uint128(due[i]);
            uint256 rest = (due[i] >> 128) - part;
            platformTotal += part;
            providerTotal += rest;
            providerDue += rest;
        }
        _pay(batch.token, provider, providerDue);
        uint256 reward = platformTotal * batch.rewardShare / BASIS_POINTS;
        if (reward != 0 && !IERC20(batch.token).trySafeTransfer(msg.sender, reward)) reward = 0;
        _pay(batch.token, batch.feeRecipient, platformTotal - reward);
    }

    /// Pays an account. If the token refuses the transfer (the account is blacklisted), pays the splitter that pays
    /// only this account. If the token refuses that as well, pays the splitter that pays only that splitter. No caller
    /// can choose a gas limit with which only the first transfer fails: a call that runs out of gas leaves its caller
    /// 1/64, which isn't enough for another transfer.
    function _pay(address token, address account, uint256 amount) private {
        if (amount == 0 || IERC20(token).trySafeTransfer(account, amount)) return;
        address to = account;
        for (uint256 i; i < REFUGES; ++i) {
            to = SPLITTER_FACTORY.splitterOf(uint256(uint160(to)) << 96 | 1 << 48, to);
            if (IERC20(token).trySafeTransfer(to, amount)) return;
        }
        revert PayeeRefused(account);
    }

    function _bytesSelector() internal pure override returns (bytes4) {
        return IERC3009Bytes.receiveWithAuthorization.selector;
    }
}

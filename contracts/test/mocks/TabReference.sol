// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC3009} from "@openzeppelin/contracts/interfaces/draft-IERC3009.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {IBatchSettlement} from "../../interfaces/IBatchSettlement.sol";
import {IERC3009Bytes} from "../../interfaces/IERC3009Bytes.sol";
import {ISplitterFactory} from "../../interfaces/ISplitterFactory.sol";
import {ITabSettlement} from "../../interfaces/ITabSettlement.sol";

/// @notice Does the same as TabSettlement, without assembly, unchecked arithmetic or shared code. The fuzz tests run
/// both and compare what they return, log and move. This contract is never deployed, because it costs far more gas.
contract TabReference is ITabSettlement {
    using SafeERC20 for IERC20;

    uint256 public constant MIN_CALL_GAS = 120_000;
    uint256 public constant MIN_TAB_GAS = 500;
    uint256 public constant MIN_LINE_GAS = 250;
    uint256 public constant MIN_PAYOUT_GAS = 55_000;
    ISplitterFactory public immutable SPLITTER_FACTORY;

    /// Gas kept for the end of a batch, in addition to the reserves in `Batch`.
    uint256 private constant TAIL_GAS = 60_000;
    uint256 private constant MAX_REASON = 132;

    enum Outcome {
        NOT_TRIED,
        SETTLED,
        USED,
        FAILED,
        SKIPPED,
        EXPIRED
    }

    struct Line {
        uint256 splitIndex;
        uint256 amount;
    }

    /// A tab with everything that its payer signed.
    struct Signed {
        address from;
        uint256 sequence;
        uint256 expiry;
        bytes32 nonce;
        uint256 value;
        uint256 validBefore;
        bytes lines;
    }

    /// State that one tab passes on to the next.
    struct Course {
        address token;
        uint256 callGas;
        uint256 neededGas;
        /// Whether to look up the next authorization's state before trying it.
        bool isProbing;
        bool hasRefused;
        address refused;
        bytes reason;
    }

    constructor(ISplitterFactory factory) {
        SPLITTER_FACTORY = factory;
    }

    function settle(
        Batch calldata batch,
        uint256[] calldata splits,
        Tab[] calldata tabs,
        bytes calldata lines,
        bytes[] calldata signatures
    ) external returns (bytes memory outcomes) {
        if (batch.token.code.length == 0) revert IBatchSettlement.InvalidToken(batch.token);
        if (batch.rewardShare > 10_000) revert InvalidRewardShare(batch.rewardShare);
        Course memory course = _begin(batch, splits.length, tabs.length, lines.length);
        Signed[] memory signed = _read(batch, splits, tabs, lines);

        outcomes = new bytes(tabs.length);
        uint256[] memory amounts = new uint256[](splits.length);
        uint256[] memory parts = new uint256[](splits.length);
        bytes memory settledLines;
        uint256 count;
        for (uint256 i; i < tabs.length; ++i) {
            Outcome outcome = Outcome.EXPIRED;
            if (block.timestamp < signed[i].expiry) outcome = _attempt(course, signed[i], tabs[i], signatures);
            if (outcome == Outcome.NOT_TRIED) break;
            outcomes[i] = bytes1(uint8(outcome) * 16);
            if (outcome == Outcome.SETTLED) {
                ++count;
                settledLines = bytes.concat(settledLines, _describe(signed[i]));
                _add(amounts, parts, splits, signed[i].lines);
            }
            if (outcome == Outcome.FAILED) {
                emit IBatchSettlement.AuthorizationFailed(
                    batch.batchId, signed[i].from, signed[i].nonce, i, course.reason
                );
            }
        }

        if (count == 0) revert IBatchSettlement.NothingSettled(outcomes);
        emit TabsSettled(batch.batchId, batch.feeRecipient, batch.rewardShare, splits, settledLines);
        (uint256 providerTotal, uint256 platformTotal) = _payOut(batch, splits, amounts, parts);
        _log(batch, count, providerTotal, platformTotal, outcomes);
    }

    function _log(
        Batch calldata batch,
        uint256 count,
        uint256 providerTotal,
        uint256 platformTotal,
        bytes memory outcomes
    ) private {
        emit IBatchSettlement.BatchSettled(
            batch.batchId, msg.sender, batch.token, batch.trigger, count, providerTotal, platformTotal, outcomes
        );
    }

    function _begin(Batch calldata batch, uint256 splitCount, uint256 tabCount, uint256 lineBytes)
        private
        pure
        returns (Course memory course)
    {
        course.token = batch.token;
        course.callGas = _max(batch.callGasLimit, MIN_CALL_GAS);
        course.neededGas = course.callGas * 64 / 63 + TAIL_GAS;
        course.neededGas += _max(batch.tabGas, MIN_TAB_GAS) * tabCount;
        course.neededGas += _max(batch.lineGas, MIN_LINE_GAS) * (lineBytes / 8);
        course.neededGas += _max(batch.payoutGas, MIN_PAYOUT_GAS) * (splitCount + 2);
        course.isProbing = true;
    }

    function _max(uint256 a, uint256 b) private pure returns (uint256) {
        return a > b ? a : b;
    }

    function _read(Batch calldata batch, uint256[] calldata splits, Tab[] calldata tabs, bytes calldata lines)
        private
        view
        returns (Signed[] memory signed)
    {
        signed = new Signed[](tabs.length);
        uint256 position;
        for (uint256 i; i < tabs.length; ++i) {
            Signed memory one = signed[i];
            uint256 head = tabs[i].head;
            one.from = address(uint160(head >> 96));
            one.sequence = uint40(head >> 40);
            one.expiry = uint40(head);
            one.nonce = tabs[i].nonce;
            uint256 end = position + 8 * uint256(uint16(head >> 80));
            if (end > lines.length) revert InvalidLines(lines.length);
            one.lines = lines[position:end];
            position = end;
            uint256 commitment;
            (one.value, commitment) = _commit(batch, splits, one);
            one.validBefore = commitment - commitment % 2 ** 40 + one.expiry;
        }
        if (position != lines.length) revert InvalidLines(lines.length);
    }

    function _commit(Batch calldata batch, uint256[] calldata splits, Signed memory tab)
        private
        view
        returns (uint256 value, uint256 commitment)
    {
        bytes memory hashed = abi.encodePacked(
            batch.feeRecipient, uint40(0), batch.rewardShare, uint40(tab.sequence), tab.nonce, tab.from, uint96(block.chainid)
        );
        for (uint256 i; i < tab.lines.length / 8; ++i) {
            Line memory line = _line(tab.lines, i);
            if (line.splitIndex >= splits.length) revert InvalidSplit(line.splitIndex);
            hashed = abi.encodePacked(hashed, splits[line.splitIndex], line.amount);
            value += line.amount;
        }
        commitment = uint256(keccak256(hashed));
    }

    function _line(bytes memory lines, uint256 index) private pure returns (Line memory line) {
        for (uint256 i; i < 8; ++i) {
            uint256 digit = uint8(lines[8 * index + i]);
            if (i < 2) line.splitIndex = line.splitIndex * 256 + digit;
            else line.amount = line.amount * 256 + digit;
        }
    }

    function _attempt(Course memory course, Signed memory signed, Tab calldata tab, bytes[] calldata signatures)
        private
        returns (Outcome)
    {
        if (course.isProbing) {
            if (gasleft() < course.neededGas) return Outcome.NOT_TRIED;
            if (course.hasRefused && signed.from == course.refused) return Outcome.SKIPPED;
            if (_isUsed(course.token, signed)) return Outcome.USED;
            course.isProbing = false;
        }
        bytes memory data = _encode(signed, tab, signatures);
        if (gasleft() < course.neededGas) return Outcome.NOT_TRIED;
        (bool success, bytes memory answer) = course.token.call{gas: course.callGas}(data);
        if (success) return Outcome.SETTLED;
        course.reason = _cut(answer);
        course.isProbing = true;
        if (_isUsed(course.token, signed)) return Outcome.USED;
        (course.hasRefused, course.refused) = (true, signed.from);
        return Outcome.FAILED;
    }

    function _encode(Signed memory signed, Tab calldata tab, bytes[] calldata signatures)
        private
        view
        returns (bytes memory)
    {
        bytes memory message = abi.encode(
            signed.from, address(this), signed.value, uint256(0), signed.validBefore, signed.nonce
        );
        uint256 parity = uint256(tab.vs) / 2 ** 255;
        uint256 s = uint256(tab.vs) % 2 ** 255;
        if (s != 0) {
            bytes4 selector = IERC3009.receiveWithAuthorization.selector;
            return bytes.concat(selector, message, abi.encode(27 + parity, tab.r, s));
        }
        if (uint256(tab.r) >= signatures.length) revert IBatchSettlement.InvalidSignatureIndex(uint256(tab.r));
        return abi.encodeWithSelector(
            IERC3009Bytes.receiveWithAuthorization.selector,
            signed.from,
            address(this),
            signed.value,
            uint256(0),
            signed.validBefore,
            signed.nonce,
            signatures[uint256(tab.r)]
        );
    }

    function _isUsed(address token, Signed memory signed) private view returns (bool) {
        (bool success, bytes memory answer) =
            token.staticcall(abi.encodeCall(IERC3009.authorizationState, (signed.from, signed.nonce)));
        return success && answer.length >= 32 && bytes32(answer) == bytes32(uint256(1));
    }

    function _cut(bytes memory answer) private pure returns (bytes memory reason) {
        reason = new bytes(answer.length < MAX_REASON ? answer.length : MAX_REASON);
        for (uint256 i; i < reason.length; ++i) reason[i] = answer[i];
    }

    function _describe(Signed memory signed) private pure returns (bytes memory) {
        return abi.encodePacked(uint16(signed.lines.length / 8), uint40(signed.sequence), signed.lines);
    }

    /// Adds a settled tab's lines to the amount of each split and to the platform's part of it.
    function _add(uint256[] memory amounts, uint256[] memory parts, uint256[] calldata splits, bytes memory lines)
        private
        pure
    {
        for (uint256 i; i < lines.length / 8; ++i) {
            Line memory line = _line(lines, i);
            uint256 providerShare = uint48(splits[line.splitIndex] >> 48);
            uint256 platformShare = uint48(splits[line.splitIndex]);
            amounts[line.splitIndex] += line.amount;
            if (platformShare != 0) {
                parts[line.splitIndex] += line.amount * platformShare / (providerShare + platformShare);
            }
        }
    }

    function _payOut(
        Batch calldata batch,
        uint256[] calldata splits,
        uint256[] memory amounts,
        uint256[] memory parts
    ) private returns (uint256 providerTotal, uint256 platformTotal) {
        uint256 due;
        for (uint256 i; i < splits.length; ++i) {
            platformTotal += parts[i];
            providerTotal += amounts[i] - parts[i];
            due += amounts[i] - parts[i];
            address provider = address(uint160(splits[i] >> 96));
            // Adjacent splits of one provider are paid together.
            if (i + 1 < splits.length && address(uint160(splits[i + 1] >> 96)) == provider) continue;
            _pay(batch.token, provider, due);
            due = 0;
        }
        uint256 reward = platformTotal * batch.rewardShare / 10_000;
        if (reward > 0 && !IERC20(batch.token).trySafeTransfer(msg.sender, reward)) reward = 0;
        _pay(batch.token, batch.feeRecipient, platformTotal - reward);
    }

    function _pay(address token, address account, uint256 amount) private {
        if (amount == 0) return;
        if (IERC20(token).trySafeTransfer(account, amount)) return;
        address first = SPLITTER_FACTORY.splitterOf(_onlyFor(account), account);
        if (IERC20(token).trySafeTransfer(first, amount)) return;
        address second = SPLITTER_FACTORY.splitterOf(_onlyFor(first), first);
        if (IERC20(token).trySafeTransfer(second, amount)) return;
        revert PayeeRefused(account);
    }

    /// Returns the split of the splitter that pays only this account.
    function _onlyFor(address account) private pure returns (uint256) {
        return uint256(uint160(account)) * 2 ** 96 + 2 ** 48;
    }
}

// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISplitterFactory} from "./ISplitterFactory.sol";

/// @title Settles tabs: all that a payer bought of many providers, by one signature each
/// @notice Anyone may call it. It has no owner and no storage, and holds nothing between two transactions: it can only pay
/// to each provider and to the platform what the payers signed for them. One bad tab never stops the others.
/// @dev The payer signs EIP-3009's `ReceiveWithAuthorization`, again and again under one nonce, each time for all that he owes
/// so far; the token sees to it that only one state of a nonce ever moves. The fields:
/// - `from` the payer, `to` this contract, `value` the sum of his lines, `validAfter` 0;
/// - `nonce` as payer and gateway agreed;
/// - `validBefore` `commitment >> 40 << 40 | expiry`. To the token it is a time far away; this contract enforces the expiry (Unix
///   seconds, 40 bits). As only the recipient may execute a `ReceiveWithAuthorization`, nobody gets around it.
/// The commitment is the keccak256 of the words `terms`, then `split` and `amount` of each line:
/// - `terms`: `platform << 96 | rewardShare (16 bits) << 40 | sequence (40 bits)`;
/// - `split`: `provider << 96 | providerShare (48 bits) << 48 | platformShare (48 bits)`, as ISplitterFactory has it.
/// The platform's part of a line is `amount * platformShare / (providerShare + platformShare)`, rounded down, and the rest is the
/// provider's; all of it where both shares are 0.
///
/// It logs `BatchSettled` and `AuthorizationFailed`, and reverts with `InvalidToken`, `InvalidSignatureIndex` and `NothingSettled`, as
/// IBatchSettlement documents them: `authorizations` counts tabs, `feeTotal` is the platform's part with the reward in it, and
/// `outcomes` are those of `settle` below. Events can be produced by anyone, with any token: only the token's own logs prove
/// that money moved. A token must move what was signed, no less.
interface ITabSettlement {
    /// @param token The EIP-3009 token; its code must exist.
    /// @param feeRecipient The platform, as the payers signed it.
    /// @param rewardShare The caller's part of the platform's part, in basis points, as the payers signed it.
    /// @param batchId The keeper's own label, only echoed in the events.
    /// @param trigger Why the keeper settled now, only echoed, as in IBatchSettlement.
    /// @param callGasLimit Most gas that one authorization may use; raised to `MIN_CALL_GAS` where it is below.
    struct Batch {
        address token;
        address feeRecipient;
        uint16 rewardShare;
        bytes32 batchId;
        uint8 trigger;
        uint64 callGasLimit;
    }

    /// @param head `from << 96 | lineCount (16 bits) << 80 | sequence (40 bits) << 40 | expiry (40 bits)`.
    /// @param nonce The authorization's nonce.
    /// @param r ECDSA r; where s is 0, the position of the signature in `signatures`.
    /// @param vs EIP-2098: the parity bit, then s.
    struct Tab {
        uint256 head;
        bytes32 nonce;
        bytes32 r;
        bytes32 vs;
    }

    /// @notice What settled, and for whom. It precedes the batch's `BatchSettled`.
    /// @param batchId As the caller gave it; not unique.
    /// @param splits As the caller gave them.
    /// @param lines Of each tab that settled, in order: the number of its lines (2 bytes), its sequence (5 bytes), and its lines
    /// as `settle` takes them.
    event TabsSettled(bytes32 indexed batchId, uint256[] splits, bytes lines);

    /// @notice The reward is more than the platform's part.
    /// @param rewardShare The reward, in basis points.
    error InvalidRewardShare(uint256 rewardShare);

    /// @notice A line's index is not in `splits`.
    /// @param splitIndex The index.
    error InvalidSplit(uint256 splitIndex);

    /// @notice `lines` has more bytes than the tabs have lines, or fewer.
    /// @param length The length of `lines`.
    error InvalidLines(uint256 length);

    /// @notice Least gas offered to each authorization, so that no caller can starve a good one into a failure.
    function MIN_CALL_GAS() external pure returns (uint256);

    /// @notice Whose splitters keep what can't be paid.
    function SPLITTER_FACTORY() external view returns (ISplitterFactory);

    /// @notice Tries each tab's authorization, and pays out what settled: to each provider, to the caller his reward, and to
    /// the platform the rest. Once a tab failed, those of the same payer that follow it are skipped, until one of another
    /// payer is tried.
    /// @dev A provider is paid once a batch where his splits are neighbours. What an account can't be paid (it is blacklisted)
    /// waits in the splitter that pays only it, that of the terms (account, 1, account, 0); a reward that can't be paid stays the
    /// platform's. Where two states of one nonce are listed, the first moves. In a batch that is sorted by payer, nobody can
    /// make more than one of his tabs fail at the caller's cost.
    /// @param batch What all tabs have in common.
    /// @param splits The terms of the providers that lines point into.
    /// @param tabs The tabs, in the order in which they are tried.
    /// @param lines The lines of all tabs, one after the other, 8 bytes each: `splitIndex (16 bits) << 48 | amount (48 bits)`.
    /// @param signatures ERC-1271 signatures, passed on verbatim; empty if all payers are plain accounts.
    /// @return outcomes A byte a tab, all in its high four bits: 0 not tried (too little gas was left), 1 settled, 2 already used
    /// or cancelled, 3 failed, 4 skipped after a failure of the same payer, 5 expired.
    function settle(
        Batch calldata batch,
        uint256[] calldata splits,
        Tab[] calldata tabs,
        bytes calldata lines,
        bytes[] calldata signatures
    ) external returns (bytes memory outcomes);
}

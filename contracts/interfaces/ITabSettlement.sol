// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ISplitterFactory} from "./ISplitterFactory.sol";

/// @title Settles tabs: one signature pays for everything that a payer bought from many providers
/// @notice Anyone may call it. It has no owner and no storage, and holds nothing between two transactions. It can only
/// pay to each provider and to the platform what the payers signed for them. One bad tab never stops the others.
/// @dev The payer signs EIP-3009's `ReceiveWithAuthorization` repeatedly under one nonce, each time for the total that
/// it owes so far. The token ensures that only one of these states ever moves money. The fields:
/// - `from` the payer, `to` this contract, `value` the sum of the payer's lines, `validAfter` 0;
/// - `nonce` as agreed between payer and gateway;
/// - `validBefore` `commitment >> 40 << 40 | expiry`. The token reads it as a time in the far future; this contract
///   enforces the expiry (Unix seconds, 40 bits). Only the recipient, this contract, may execute a
///   `ReceiveWithAuthorization`, so no one can bypass the expiry.
///
/// The commitment is the keccak256 of the words `terms`, `nonce` and `payer`, then `split` and `amount` of each line:
/// - `terms`: `platform << 96 | rewardShare (16 bits) << 40 | sequence (40 bits)`;
/// - `nonce`: the authorization's; `payer`: `from << 96 | chainId`. Because of these two, a collision of the hash
///   (216 bits of it are signed) could be used only against one tab of one payer on one chain;
/// - `split`: `provider << 96 | providerShare (48 bits) << 48 | platformShare (48 bits)`, as ISplitterFactory defines it.
///
/// The platform's part of a line is `amount * platformShare / (providerShare + platformShare)`, rounded down, and the
/// rest is the provider's. If both shares are 0, the provider gets all of it.
///
/// A line whose provider is this contract leaves its amount here permanently: the contract pays out only what it pulled in the same
/// batch, and has no other way to send a token. Gateways must not offer such a line, and payers must not sign one.
///
/// It logs `BatchSettled` and `AuthorizationFailed`, and reverts with `InvalidToken`, `InvalidSignatureIndex` and `NothingSettled`, as
/// IBatchSettlement documents them: `authorizations` counts tabs, `feeTotal` is the platform's part with the reward in it, and
/// `outcomes` are those of `settle` below. Anyone can produce the events with any token: only the token's own logs
/// prove that money moved. A token must move the full amount that was signed.
interface ITabSettlement {
    /// @param token The EIP-3009 token; its code must exist.
    /// @param feeRecipient The platform, as the payers signed it.
    /// @param rewardShare The caller's part of the platform's part, in basis points, as the payers signed it.
    /// @param batchId The keeper's label for this batch, only echoed in the events.
    /// @param trigger Why the keeper settled now, only echoed, as in IBatchSettlement.
    /// @param callGasLimit Maximum gas of one authorization; raised to `MIN_CALL_GAS` if it is lower.
    /// @param tabGas Gas kept for each tab; raised to `MIN_TAB_GAS` if it is lower.
    /// @param lineGas Gas kept for each line; raised to `MIN_LINE_GAS` if it is lower.
    /// @param payoutGas Gas kept for each payout; raised to `MIN_PAYOUT_GAS` if it is lower.
    struct Batch {
        address token;
        address feeRecipient;
        uint16 rewardShare;
        bytes32 batchId;
        uint8 trigger;
        uint64 callGasLimit;
        uint64 tabGas;
        uint64 lineGas;
        uint64 payoutGas;
    }

    /// @param head `from << 96 | lineCount (16 bits) << 80 | sequence (40 bits) << 40 | expiry (40 bits)`.
    /// @param nonce The authorization's nonce.
    /// @param r ECDSA r. If s is 0, the position of the signature in `signatures`.
    /// @param vs EIP-2098: the parity bit, then s.
    struct Tab {
        uint256 head;
        bytes32 nonce;
        bytes32 r;
        bytes32 vs;
    }

    /// @notice The lines of the tabs that settled. Together with the token's own logs, they show everything that the
    /// payers signed about who is paid. This event precedes the batch's `BatchSettled`, which names the token. Between
    /// the two events, only a batch of another token can have reentered this contract.
    /// @dev A payer can settle its own tab under other terms, for example with itself as the platform. So a gateway
    /// that accepted a tab must compare `platform` and `rewardShare` with the accepted ones before it counts the fee as
    /// paid.
    /// @param batchId As the caller gave it; not unique.
    /// @param platform The recipient of the platform's part, as the payers of these tabs signed it.
    /// @param rewardShare The caller's part of the platform's part, in basis points, as the payers of these tabs signed it.
    /// @param splits As the caller gave them.
    /// @param lines For each tab that settled, in order: the number of its lines (2 bytes), its sequence (5 bytes), and
    /// its lines as `settle` takes them.
    event TabsSettled(
        bytes32 indexed batchId, address indexed platform, uint16 rewardShare, uint256[] splits, bytes lines
    );

    /// @notice The reward is more than the platform's part.
    /// @param rewardShare The reward, in basis points.
    error InvalidRewardShare(uint256 rewardShare);

    /// @notice A line's index is not in `splits`.
    /// @param splitIndex The index.
    error InvalidSplit(uint256 splitIndex);

    /// @notice The length of `lines` doesn't match the tabs' line counts.
    /// @param length The length of `lines`.
    error InvalidLines(uint256 length);

    /// @notice The token refuses to pay this account and both splitters that would hold its money. The whole batch
    /// reverted. Try again without the tabs that pay this account.
    /// @param account A provider or the platform.
    error PayeeRefused(address account);

    /// @notice Minimum gas offered to each authorization, so that no caller can make a good one fail by sending too
    /// little gas.
    function MIN_CALL_GAS() external pure returns (uint256);

    /// @notice Minimum gas for each tab of the batch that must remain before each authorization is tried. Gas must also
    /// remain for each line, at least MIN_LINE_GAS, and for each payout, at least MIN_PAYOUT_GAS.
    /// @dev These reserves ensure that everything that settled is paid out, even if a payer's wallet burns all of its
    /// gas. They are fields of `Batch`, so a fork that makes opcodes more expensive needs no new contract: the caller
    /// raises them. Only their sum counts, so `payoutGas` also covers what such a fork adds to the end of a batch.
    function MIN_TAB_GAS() external pure returns (uint256);

    /// @notice Minimum gas for each line: see `MIN_TAB_GAS`.
    function MIN_LINE_GAS() external pure returns (uint256);

    /// @notice Minimum gas for each payout: see `MIN_TAB_GAS`.
    function MIN_PAYOUT_GAS() external pure returns (uint256);

    /// @notice The factory of the splitters that hold money whose recipient can't be paid.
    function SPLITTER_FACTORY() external view returns (ISplitterFactory);

    /// @notice Tries each tab's authorization, then pays each provider, pays the caller's reward, and pays the rest to
    /// the platform. After a tab fails, the following tabs of the same payer are skipped until a tab of another
    /// payer is tried.
    /// @dev A provider whose splits are adjacent is paid once per batch. If the token refuses to pay a provider or the
    /// platform (it is blacklisted), the money goes to the splitter that pays only this account, with the terms
    /// (account, 1, account, 0). If the token refuses that splitter as well, the money goes to the splitter that pays
    /// only that splitter, with the terms (splitter, 1, splitter, 0). So nothing is lost, and no one else has to wait.
    /// Only if the token refuses all three does the batch revert with `PayeeRefused`. A reward that can't be paid goes
    /// to the platform. If two states of one nonce are listed, the first one moves money. In a batch that is sorted by
    /// payer, no payer can make more than one of its tabs fail at the caller's cost.
    /// @param batch What all tabs have in common.
    /// @param splits The terms of the providers that lines point into.
    /// @param tabs The tabs, in the order in which they are tried.
    /// @param lines The lines of all tabs, one after the other, 8 bytes each: `splitIndex (16 bits) << 48 | amount (48 bits)`.
    /// @param signatures ERC-1271 signatures, passed on verbatim; empty if all payers are plain accounts.
    /// @return outcomes One byte per tab, with the outcome in the high four bits: 0 not tried (too little gas was
    /// left), 1 settled, 2 already used or cancelled, 3 failed, 4 skipped after a failure of the same payer, 5 expired.
    function settle(
        Batch calldata batch,
        uint256[] calldata splits,
        Tab[] calldata tabs,
        bytes calldata lines,
        bytes[] calldata signatures
    ) external returns (bytes memory outcomes);
}

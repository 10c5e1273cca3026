// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/// @title Settles many EIP-3009 authorizations in one transaction
/// @notice Anyone may call it. It has no owner, no storage, no allowance, and holds no money. It can only execute what
/// the buyers signed: moving their own tokens to the recipients they named. One bad item never stops the others.
/// @dev In `settle`, a payment is up to two authorizations of one buyer: the provider's, then the platform's fee. In
/// `settleAuthorizations`, a payment is one authorization to any recipient, such as a splitter. Anyone can produce the
/// events below with any token: only the token's own logs prove that money moved.
interface IBatchSettlement {
    /// @param token The EIP-3009 token; its code must exist.
    /// @param feeRecipient Recipient of every fee authorization in this batch, as the buyers signed it.
    /// @param batchId The keeper's label for this batch, only echoed in the events.
    /// @param trigger Why the keeper settled now, only echoed: 0 amount, 1 count, 2 time, 3 high_value, 4 expiry, 5 submission.
    /// @param callGasLimit Maximum gas of one authorization; raised to `MIN_CALL_GAS` if it is lower.
    struct Batch {
        address token;
        address feeRecipient;
        bytes32 batchId;
        uint8 trigger;
        uint64 callGasLimit;
    }

    /// @param head `from << 96 | payeeIndex (16 bits) << 80 | validAfter (40 bits) << 40 | validBefore (40 bits)`.
    /// @param values `amount << 128 | fee`; fee 0 means that there is no fee authorization.
    /// @param nonce Nonce of the provider's authorization.
    /// @param feeNonce Nonce of the fee's authorization; 0 means `keccak256(nonce)`.
    /// @param r ECDSA r of the provider's authorization. If s is 0, the position of the signature in `signatures`.
    /// @param vs EIP-2098: the parity bit, then s.
    /// @param feeR As `r`, for the fee's authorization.
    /// @param feeVs As `vs`, for the fee's authorization.
    struct Payment {
        uint256 head;
        uint256 values;
        bytes32 nonce;
        bytes32 feeNonce;
        bytes32 r;
        bytes32 vs;
        bytes32 feeR;
        bytes32 feeVs;
    }

    /// @param head As in `Payment`.
    /// @param value The amount, in base units.
    /// @param nonce The authorization's nonce.
    /// @param r As in `Payment`.
    /// @param vs As in `Payment`.
    struct Authorization {
        uint256 head;
        uint256 value;
        bytes32 nonce;
        bytes32 r;
        bytes32 vs;
    }

    /// @notice The splitters to sweep after the batch has settled. Their platform is the batch's `feeRecipient`.
    /// @param factory The ISplitterFactory that makes them.
    /// @param gasLimit Maximum gas of the whole sweep. This gas is kept back from the authorizations.
    /// @param splits The packed terms of each splitter, as ISplitterFactory defines them. If it is empty, nothing is swept.
    struct Sweep {
        address factory;
        uint64 gasLimit;
        uint256[] splits;
    }

    /// @notice At least one authorization of the batch was settled.
    /// @param batchId As the caller gave it; not unique.
    /// @param keeper The caller.
    /// @param token The token that was called.
    /// @param trigger As the caller gave it.
    /// @param authorizations Number of authorizations that settled.
    /// @param providerTotal Sum of the provider amounts that settled.
    /// @param feeTotal Sum of the fees that settled.
    /// @param outcomes As `settle` returns them.
    event BatchSettled(
        bytes32 indexed batchId,
        address indexed keeper,
        address indexed token,
        uint8 trigger,
        uint256 authorizations,
        uint256 providerTotal,
        uint256 feeTotal,
        bytes outcomes
    );

    /// @notice The token refused an authorization that is neither used nor cancelled.
    /// @param batchId As the caller gave it.
    /// @param from The buyer.
    /// @param nonce The authorization's nonce; it distinguishes the provider's authorization from the fee's.
    /// @param index Position of the payment in the batch.
    /// @param reason The token's revert data, at most its first 132 bytes; empty if the call ran out of gas.
    event AuthorizationFailed(
        bytes32 indexed batchId, address indexed from, bytes32 indexed nonce, uint256 index, bytes reason
    );

    /// @notice `batch.token` has no code.
    /// @param token The token.
    error InvalidToken(address token);

    /// @notice A payment's payeeIndex is not in `payees`.
    /// @param payeeIndex The index.
    error InvalidPayee(uint256 payeeIndex);

    /// @notice A payment with s == 0 points outside `signatures`.
    /// @param signatureIndex The index.
    error InvalidSignatureIndex(uint256 signatureIndex);

    /// @notice No authorization of the batch could be settled; nothing changed.
    /// @param outcomes The outcome of each payment, as `settle` would return it.
    error NothingSettled(bytes outcomes);

    /// @notice Minimum gas offered to each authorization, so that no caller can make a good one fail by sending too
    /// little gas.
    function MIN_CALL_GAS() external pure returns (uint256);

    /// @notice Tries each payment's provider authorization and its fee authorization. If an authorization fails, all
    /// following authorizations of the same payer, including the fee of that payment, are skipped until an
    /// authorization of another payer is tried.
    /// @dev In a batch that is sorted by payer, no payer can make more than one of its authorizations fail at the
    /// caller's cost.
    /// @param batch What all payments have in common.
    /// @param payees The distinct provider recipients that `head` points into.
    /// @param payments The payments, in the order in which they are tried.
    /// @param signatures ERC-1271 signatures, passed on verbatim; empty if all buyers are plain accounts.
    /// @return outcomes One byte per payment, with the provider's outcome in the high four bits and the fee's in the
    /// low four: 0 not tried (too little gas was left, or there is no fee), 1 settled, 2 already used or cancelled, 3
    /// failed, 4 skipped after a failure of the same payer.
    function settle(
        Batch calldata batch,
        address[] calldata payees,
        Payment[] calldata payments,
        bytes[] calldata signatures
    ) external returns (bytes memory outcomes);

    /// @notice Tries each authorization, skips authorizations as `settle` does, and then sweeps the splitters. A failed
    /// sweep doesn't undo what settled.
    /// @dev The sweep comes after `BatchSettled`, and the caller chooses the factory, so only the token's logs prove
    /// what was swept.
    /// @param batch What all authorizations have in common.
    /// @param payees The distinct recipients that `head` points into.
    /// @param authorizations The authorizations, in the order in which they are tried.
    /// @param signatures ERC-1271 signatures, passed on verbatim; empty if all buyers are plain accounts.
    /// @param sweep The splitters to sweep.
    /// @return outcomes As `settle` returns them, with 0 in the low four bits. In the event, `providerTotal` is the sum
    /// of all that settled.
    function settleAuthorizations(
        Batch calldata batch,
        address[] calldata payees,
        Authorization[] calldata authorizations,
        bytes[] calldata signatures,
        Sweep calldata sweep
    ) external returns (bytes memory outcomes);
}

// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "./interfaces/IBatchSettlement.sol";

/// @title BatchSettlement
/// @notice See IBatchSettlement, which documents every function, event and error.
contract BatchSettlement is IBatchSettlement {
    /// @inheritdoc IBatchSettlement
    /// @dev The dearest transferWithAuthorization of a plain account (everything cold, a new recipient) uses 93,000.
    uint256 public constant MIN_CALL_GAS = 120_000;

    /// What must be left beside a call's own gas: its aftermath and the end of the batch, which one item that burns
    /// its whole limit must not be able to revert. OUTCOME_GAS is for each byte of `outcomes` to be returned and logged.
    uint256 private constant TAIL_GAS = 60_000;
    uint256 private constant OUTCOME_GAS = 16;

    uint256 private constant NOT_TRIED = 0;
    uint256 private constant SETTLED = 1;
    uint256 private constant USED = 2;
    uint256 private constant FAILED = 3;
    uint256 private constant SKIPPED = 4;

    /// Longest part of a revert reason that is copied: Error(string) of up to 64 characters.
    uint256 private constant MAX_REASON = 132;

    // transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)
    uint256 private constant TRANSFER_SELECTOR = 0xe3ee160e;
    // transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)
    uint256 private constant TRANSFER_BYTES_SELECTOR = 0xcf092995;
    // authorizationState(address,bytes32)
    uint256 private constant STATE_SELECTOR = 0xe94a0102;

    /// What one run of `settle` carries from payment to payment.
    struct Run {
        address token;
        bytes32 batchId;
        uint256 callGas;
        uint256 neededGas;
        /// Memory of the call's data, written once and changed from call to call: the selector ends at +0x20.
        uint256 frame;
        /// An authorization was found used: look before trying the next one.
        bool probing;
    }

    /// @inheritdoc IBatchSettlement
    function settle(
        Batch calldata batch,
        address[] calldata payees,
        Payment[] calldata payments,
        bytes[] calldata signatures
    ) external returns (bytes memory outcomes) {
        if (batch.token.code.length == 0) revert InvalidToken();
        outcomes = new bytes(payments.length);
        Run memory run = _start(batch, payments.length);
        (uint256 authorizations, uint256 providerTotal, uint256 feeTotal) = (0, 0, 0);

        unchecked {
            for (uint256 i; i < payments.length; ++i) {
                Payment calldata payment = payments[i];
                (uint256 head, uint256 amount) = (payment.head, payment.values >> 128);
                uint256 fee = uint128(payment.values);
                uint256 payee = uint16(head >> 80);
                if (payee >= payees.length) revert InvalidPayee();

                uint256 frame = run.frame;
                address to = payees[payee];
                assembly ("memory-safe") {
                    mstore(add(frame, 0x20), shr(96, head))
                    mstore(add(frame, 0x80), and(shr(40, head), 0xffffffffff))
                    mstore(add(frame, 0xa0), and(head, 0xffffffffff))
                }
                uint256 outcome = _attempt(run, i, to, amount, payment.nonce, payment.r, payment.vs, signatures);
                if (outcome == NOT_TRIED) break;
                if (outcome == SETTLED) {
                    ++authorizations;
                    providerTotal += amount;
                }

                uint256 feeOutcome;
                if (fee != 0) {
                    if (outcome == FAILED) {
                        feeOutcome = SKIPPED;
                    } else {
                        bytes32 feeNonce = payment.feeNonce;
                        if (feeNonce == 0) feeNonce = keccak256(abi.encode(payment.nonce));
                        feeOutcome = _attempt(
                            run, i, batch.feeRecipient, fee, feeNonce, payment.feeR, payment.feeVs, signatures
                        );
                        if (feeOutcome == SETTLED) {
                            ++authorizations;
                            feeTotal += fee;
                        }
                    }
                }
                outcome = outcome << 4 | feeOutcome;
                assembly ("memory-safe") {
                    mstore8(add(add(outcomes, 0x20), i), outcome)
                }
                if (fee != 0 && feeOutcome == NOT_TRIED) break;
            }
        }
        if (authorizations == 0) revert NothingSettled();
        emit BatchSettled(
            batch.batchId, msg.sender, batch.token, batch.trigger, authorizations, providerTotal, feeTotal, outcomes
        );
    }

    function _start(Batch calldata batch, uint256 count) private pure returns (Run memory run) {
        uint256 callGas = batch.callGasLimit < MIN_CALL_GAS ? MIN_CALL_GAS : batch.callGasLimit;
        uint256 frame;
        assembly ("memory-safe") {
            frame := mload(0x40)
            mstore(0x40, add(frame, 0x140))
            mstore(frame, TRANSFER_SELECTOR)
        }
        run.token = batch.token;
        run.batchId = batch.batchId;
        run.callGas = callGas;
        run.neededGas = callGas * 64 / 63 + TAIL_GAS + OUTCOME_GAS * count;
        run.frame = frame;
        run.probing = true;
    }

    /// Tries one authorization, whose from, validAfter and validBefore stand in the frame already.
    function _attempt(
        Run memory run,
        uint256 index,
        address to,
        uint256 value,
        bytes32 nonce,
        bytes32 r,
        bytes32 vs,
        bytes[] calldata signatures
    ) private returns (uint256) {
        uint256 frame = run.frame;
        assembly ("memory-safe") {
            mstore(add(frame, 0x40), to)
            mstore(add(frame, 0x60), value)
            mstore(add(frame, 0xc0), nonce)
        }
        if (run.probing) {
            if (_isUsed(run.token, frame)) return USED;
            run.probing = false;
        }

        uint256 size = 0x124;
        uint256 s = uint256(vs) << 1 >> 1;
        if (s == 0) {
            if (uint256(r) >= signatures.length) revert InvalidSignatureIndex();
            size = _writeSignature(frame, signatures[uint256(r)]);
        } else {
            assembly ("memory-safe") {
                mstore(add(frame, 0xe0), add(27, shr(255, vs)))
                mstore(add(frame, 0x100), r)
                mstore(add(frame, 0x120), s)
            }
        }

        if (gasleft() < run.neededGas) return NOT_TRIED;
        (address token, uint256 callGas) = (run.token, run.callGas);
        bool success;
        assembly ("memory-safe") {
            success := call(callGas, token, 0, add(frame, 0x1c), size, 0, 0)
            mstore(frame, TRANSFER_SELECTOR)
        }
        if (success) return SETTLED;

        bytes memory reason = _reason();
        if (_isUsed(token, frame)) {
            run.probing = true;
            return USED;
        }
        address from;
        assembly ("memory-safe") {
            from := mload(add(frame, 0x20))
        }
        emit AuthorizationFailed(run.batchId, from, nonce, index, reason);
        return FAILED;
    }

    /// Turns the frame into a call of the bytes overload and returns that call's length.
    function _writeSignature(uint256 frame, bytes calldata signature) private pure returns (uint256 size) {
        assembly ("memory-safe") {
            mstore(frame, TRANSFER_BYTES_SELECTOR)
            mstore(add(frame, 0xe0), 0xe0)
            mstore(add(frame, 0x100), signature.length)
            let padded := and(add(signature.length, 0x1f), not(0x1f))
            let data := add(frame, 0x120)
            mstore(add(data, sub(padded, 0x20)), 0)
            calldatacopy(data, signature.offset, signature.length)
            mstore(0x40, add(data, padded))
            size := add(0x104, padded)
        }
    }

    /// Whether the token says that the frame's nonce of the frame's buyer is used or cancelled.
    function _isUsed(address token, uint256 frame) private view returns (bool used) {
        assembly ("memory-safe") {
            let probe := mload(0x40)
            mstore(probe, STATE_SELECTOR)
            mstore(add(probe, 0x20), mload(add(frame, 0x20)))
            mstore(add(probe, 0x40), mload(add(frame, 0xc0)))
            let success := staticcall(gas(), token, add(probe, 0x1c), 0x44, 0, 0x20)
            used := and(and(success, gt(returndatasize(), 0x1f)), eq(mload(0), 1))
        }
    }

    /// What the last call answered, cut so that no callee can make the batch pay for a long answer.
    function _reason() private pure returns (bytes memory reason) {
        assembly ("memory-safe") {
            let size := returndatasize()
            if gt(size, MAX_REASON) { size := MAX_REASON }
            reason := mload(0x40)
            mstore(0x40, add(reason, 0xc0))
            mstore(reason, size)
            returndatacopy(add(reason, 0x20), 0, size)
        }
    }
}

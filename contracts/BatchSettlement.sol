// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC3009} from "@openzeppelin/contracts/interfaces/draft-IERC3009.sol";
import {AuthorizationCalls} from "./AuthorizationCalls.sol";
import {IBatchSettlement} from "./interfaces/IBatchSettlement.sol";
import {IERC3009Bytes} from "./interfaces/IERC3009Bytes.sol";
import {ISplitterFactory} from "./interfaces/ISplitterFactory.sol";

/// @title BatchSettlement
/// @notice See IBatchSettlement, which documents every function, event and error.
contract BatchSettlement is IBatchSettlement, AuthorizationCalls {
    /// @inheritdoc IBatchSettlement
    uint256 public constant MIN_CALL_GAS = LEAST_CALL_GAS;

    /// Gas that must remain besides the sweep's gas limit, so that `settleAuthorizations` returns its outcomes even if
    /// the sweep burns its whole limit.
    uint256 private constant RETURN_GAS = 5_000;

    // Offsets that the assembly uses. Layout.t.sol compares them with the compiler's.
    /// Offsets in the calldata of a `Payment`.
    uint256 internal constant PAYMENT_NONCE = 0x40;
    uint256 internal constant PAYMENT_SIZE = 0x100;
    /// Size of an `Authorization` in calldata.
    uint256 internal constant AUTHORIZATION_SIZE = 0xa0;

    /// @inheritdoc IBatchSettlement
    function settle(
        Batch calldata batch,
        address[] calldata payees,
        Payment[] calldata payments,
        bytes[] calldata signatures
    ) external returns (bytes memory outcomes) {
        Run memory run = _start(batch, payments.length);
        outcomes = new bytes(payments.length);
        uint256 authorizations;
        uint256 providerTotal;
        uint256 feeTotal;
        Payment calldata payment;
        assembly ("memory-safe") {
            payment := payments.offset
        }

        // No sum here can overflow: each adds at most 2^32 values below 2^128.
        unchecked {
            for (uint256 i; i < payments.length; ++i) {
                uint256 amount = payment.values >> 128;
                uint256 fee = uint128(payment.values);
                _setHead(run, payment.head, payees);
                (run.value, run.nonce) = (amount, payment.nonce);
                uint256 outcome = _attempt(run, payment.r, payment.vs, signatures);
                uint256 feeOutcome;
                if (outcome == SETTLED) {
                    ++authorizations;
                    providerTotal += amount;
                } else if (outcome == NOT_TRIED) {
                    break;
                } else if (outcome == FAILED) {
                    emit AuthorizationFailed(batch.batchId, _from(run), run.nonce, i, run.reason);
                }

                // If the provider's authorization failed or was skipped, the fee's authorization is skipped as well,
                // because it has the same payer.
                if (fee != 0) {
                    _setFee(run, payment, fee);
                    feeOutcome = _attempt(run, payment.feeR, payment.feeVs, signatures);
                    if (feeOutcome == SETTLED) {
                        ++authorizations;
                        feeTotal += fee;
                    } else if (feeOutcome == FAILED) {
                        emit AuthorizationFailed(batch.batchId, _from(run), run.nonce, i, run.reason);
                    }
                }

                assembly ("memory-safe") {
                    mstore8(add(add(outcomes, WORD), i), or(shl(4, outcome), feeOutcome))
                    payment := add(payment, PAYMENT_SIZE)
                }
            }
        }

        _finish(batch, authorizations, providerTotal, feeTotal, outcomes);
    }

    /// @inheritdoc IBatchSettlement
    function settleAuthorizations(
        Batch calldata batch,
        address[] calldata payees,
        Authorization[] calldata authorizations,
        bytes[] calldata signatures,
        Sweep calldata sweep
    ) external returns (bytes memory outcomes) {
        bytes memory sweepData;
        uint256 sweepGas;
        if (sweep.splits.length != 0) {
            // Encode the sweep first, so that its cost is known before anything settles.
            sweepData = abi.encodeCall(
                ISplitterFactory.sweep, (batch.token, batch.feeRecipient, sweep.splits)
            );
            // EIP-150: a call gets at most 63/64 of what is left, so more than the sweep's limit must be left.
            sweepGas = uint256(sweep.gasLimit) * 64 / 63 + RETURN_GAS + OUTCOME_GAS * authorizations.length;
        }
        Run memory run = _start(batch, authorizations.length);
        run.neededGas += sweepGas;
        outcomes = new bytes(authorizations.length);
        uint256 settled;
        uint256 total;
        Authorization calldata authorization;
        assembly ("memory-safe") {
            authorization := authorizations.offset
        }

        // The sum can overflow only if the token moves more than its supply. Events about such a token prove nothing.
        unchecked {
            for (uint256 i; i < authorizations.length; ++i) {
                uint256 value = authorization.value;
                _setHead(run, authorization.head, payees);
                (run.value, run.nonce) = (value, authorization.nonce);
                uint256 outcome = _attempt(run, authorization.r, authorization.vs, signatures);
                if (outcome == SETTLED) {
                    ++settled;
                    total += value;
                } else if (outcome == NOT_TRIED) {
                    break;
                } else if (outcome == FAILED) {
                    emit AuthorizationFailed(batch.batchId, _from(run), run.nonce, i, run.reason);
                }

                assembly ("memory-safe") {
                    mstore8(add(add(outcomes, WORD), i), shl(4, outcome))
                    authorization := add(authorization, AUTHORIZATION_SIZE)
                }
            }
        }

        _finish(batch, settled, total, 0, outcomes);
        // Sweep after the event, so that no log of a sweep can be taken for a part of the batch. The result is ignored.
        if (sweepGas != 0 && gasleft() >= sweepGas) {
            (address factory, uint256 gasLimit) = (sweep.factory, sweep.gasLimit);
            assembly ("memory-safe") {
                pop(call(gasLimit, factory, 0, add(sweepData, WORD), mload(sweepData), 0, 0))
            }
        }
    }

    /// Logs the result of the batch, or reverts if nothing settled.
    function _finish(
        Batch calldata batch,
        uint256 authorizations,
        uint256 providerTotal,
        uint256 feeTotal,
        bytes memory outcomes
    ) private {
        if (authorizations == 0) revert NothingSettled(outcomes);
        emit BatchSettled(
            batch.batchId, msg.sender, batch.token, batch.trigger, authorizations, providerTotal, feeTotal, outcomes
        );
    }

    function _start(Batch calldata batch, uint256 count) private view returns (Run memory run) {
        // A call to an address without code succeeds, so a batch without a token would seem to settle.
        if (batch.token.code.length == 0) revert InvalidToken(batch.token);
        run.token = batch.token;
        run.feeRecipient = batch.feeRecipient;
        run.callGas = batch.callGasLimit < MIN_CALL_GAS ? MIN_CALL_GAS : batch.callGasLimit;
        // EIP-150: a call gets at most 63/64 of what is left.
        run.neededGas = run.callGas * 64 / 63 + TAIL_GAS + OUTCOME_GAS * count;
        run.selector = uint32(IERC3009.transferWithAuthorization.selector);
        run.probing = true;
        run.refused = type(uint256).max;
    }

    /// Writes a payment's payer, recipient and validity window into `run`. The payment's fee has the same payer and
    /// window, but another recipient.
    function _setHead(Run memory run, uint256 head, address[] calldata payees) private pure {
        uint256 payeeIndex = uint16(head >> 80);
        if (payeeIndex >= payees.length) revert InvalidPayee(payeeIndex);
        uint256 to;
        assembly ("memory-safe") {
            to := calldataload(add(payees.offset, shl(5, payeeIndex)))
        }
        run.from = head >> 96;
        run.to = uint160(to);
        run.validAfter = uint40(head >> 40);
        run.validBefore = uint40(head);
    }

    function _setFee(Run memory run, Payment calldata payment, uint256 fee) private pure {
        bytes32 nonce = payment.feeNonce;
        if (nonce == 0) {
            assembly ("memory-safe") {
                mstore(0, calldataload(add(payment, PAYMENT_NONCE)))
                nonce := keccak256(0, WORD)
            }
        }
        run.to = uint160(run.feeRecipient);
        run.value = fee;
        run.nonce = nonce;
    }
    function _bytesSelector() internal pure override returns (bytes4) {
        return IERC3009Bytes.transferWithAuthorization.selector;
    }
}

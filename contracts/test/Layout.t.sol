// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC3009} from "@openzeppelin/contracts/interfaces/draft-IERC3009.sol";
import {BatchSettlement} from "../BatchSettlement.sol";
import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {IERC3009Bytes} from "../interfaces/IERC3009Bytes.sol";
import {IFiatToken} from "./support/IFiatToken.sol";

/// @notice The offsets that the contracts' assembly uses match the compiler's, and the selectors match USDC's.
contract LayoutTest is BatchSettlement {
    function test_behavior_offsetsOfRun() public pure {
        Run memory run;
        run.token = address(1);
        run.callGas = 2;
        run.from = 3;
        run.nonce = bytes32(uint256(4));
        require(_word(run, RUN_TOKEN) == 1, "token");
        require(_word(run, RUN_CALL_GAS) == 2, "callGas");
        require(_word(run, RUN_FROM) == 3, "from");
        require(_word(run, RUN_NONCE) == 4, "nonce");
    }

    /// The words from `selector` to `s` equal the calldata that the compiler encodes.
    function test_behavior_transferIsCallData() public pure {
        Run memory run;
        run.selector = uint32(IERC3009.transferWithAuthorization.selector);
        (run.from, run.to, run.value, run.validAfter, run.validBefore) = (1, 2, 3, 4, 5);
        (run.nonce, run.v, run.r, run.s) = (bytes32(uint256(6)), 7, bytes32(uint256(8)), 9);
        bytes memory data = abi.encodeCall(
            IERC3009.transferWithAuthorization,
            (address(1), address(2), 3, 4, 5, bytes32(uint256(6)), 7, bytes32(uint256(8)), bytes32(uint256(9)))
        );
        bytes32 hash;
        assembly ("memory-safe") {
            hash := keccak256(add(run, RUN_TRANSFER), TRANSFER_SIZE)
        }
        require(data.length == TRANSFER_SIZE && keccak256(data) == hash, "call data");
    }

    function test_behavior_receiveIsCallData() public pure {
        bytes memory transfer = abi.encodeCall(
            IERC3009.transferWithAuthorization,
            (address(1), address(2), 3, 4, 5, bytes32(uint256(6)), 7, bytes32(uint256(8)), bytes32(uint256(9)))
        );
        bytes memory receive_ = abi.encodeCall(
            IERC3009.receiveWithAuthorization,
            (address(1), address(2), 3, 4, 5, bytes32(uint256(6)), 7, bytes32(uint256(8)), bytes32(uint256(9)))
        );
        for (uint256 i = 4; i < transfer.length; ++i) require(transfer[i] == receive_[i], "call data");
    }

    function test_behavior_stateIsCallData() public pure {
        bytes memory data = abi.encodeCall(IERC3009.authorizationState, (address(1), bytes32(uint256(2))));
        require(data.length == STATE_SIZE, "size");
        require(SELECTOR_IN_WORD == WORD - 4, "selector");
    }

    function test_behavior_offsetsOfPayment() public view {
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](2);
        (payments[0].nonce, payments[1].head) = (bytes32(uint256(1)), 2);
        this.checkPayments(payments);
    }

    function checkPayments(IBatchSettlement.Payment[] calldata payments) external pure {
        uint256 nonce;
        uint256 next;
        assembly ("memory-safe") {
            nonce := calldataload(add(payments.offset, PAYMENT_NONCE))
            next := calldataload(add(payments.offset, PAYMENT_SIZE))
        }
        require(nonce == 1 && next == 2, "payment");
    }

    function test_behavior_offsetsOfAuthorization() public view {
        IBatchSettlement.Authorization[] memory authorizations = new IBatchSettlement.Authorization[](2);
        authorizations[1].head = 2;
        this.checkAuthorizations(authorizations);
    }

    function checkAuthorizations(IBatchSettlement.Authorization[] calldata authorizations) external pure {
        uint256 next;
        assembly ("memory-safe") {
            next := calldataload(add(authorizations.offset, AUTHORIZATION_SIZE))
        }
        require(next == 2, "authorization");
    }

    function test_behavior_selectorsAreThoseOfUsdc() public pure {
        require(IERC3009.transferWithAuthorization.selector == 0xe3ee160e, "transferWithAuthorization");
        require(IERC3009Bytes.transferWithAuthorization.selector == 0xcf092995, "with bytes");
        require(IERC3009.receiveWithAuthorization.selector == 0xef55bec6, "receiveWithAuthorization");
        require(IERC3009Bytes.receiveWithAuthorization.selector == 0x88b7ab63, "with bytes");
        require(IERC3009.authorizationState.selector == IFiatToken.authorizationState.selector, "authorizationState");
    }

    function _word(Run memory run, uint256 offset) private pure returns (uint256 word) {
        assembly ("memory-safe") {
            word := mload(add(run, offset))
        }
    }
}

// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../../interfaces/IBatchSettlement.sol";
import {ISplitterFactory} from "../../interfaces/ISplitterFactory.sol";
import {SettlementTest} from "./SettlementTest.sol";

/// @notice The real USDC, a BatchSettlement, and splitters of one platform.
abstract contract SplitterTest is SettlementTest {
    /// Gas limit of a sweep in most tests.
    uint64 internal constant SWEEP_GAS = 1_000_000;
    address internal constant STRANGER = address(0x5747);

    ISplitterFactory internal factory;

    function setUp() public virtual override {
        super.setUp();
        factory = ISplitterFactory(_deploy("SplitterFactory"));
        vm.label(STRANGER, "stranger");
    }

    function _split(address provider, uint256 providerShare, uint256 platformShare) internal pure returns (uint256) {
        return uint256(uint160(provider)) << 96 | providerShare << 48 | platformShare;
    }

    /// Returns a split that gives nine of ten parts to the provider.
    function _usual() internal pure returns (uint256) {
        return _split(PROVIDER, 9, 1);
    }

    function _splitterOf(uint256 split) internal view returns (address) {
        return factory.splitterOf(split, PLATFORM);
    }

    /// Returns an undeployed splitter that holds `amount`.
    function _filled(uint256 split, uint256 amount) internal returns (address splitter) {
        splitter = _splitterOf(split);
        if (amount != 0) usdc.mint(splitter, amount);
    }

    function _sweep(uint256[] memory splits) internal {
        factory.sweep(address(usdc), PLATFORM, splits);
    }

    function _sweep(uint256 split) internal {
        _sweep(_list(split));
    }

    function _list(uint256 split) internal pure returns (uint256[] memory splits) {
        splits = new uint256[](1);
        splits[0] = split;
    }

    /// Checks what provider and platform received, not counting the one unit that each has from the start.
    function _checkPaid(uint256 provider, uint256 platform, string memory message) internal view {
        vm.assertEq(usdc.balanceOf(PROVIDER) - 1, provider, string.concat("the provider's balance, ", message));
        vm.assertEq(usdc.balanceOf(PLATFORM) - 1, platform, string.concat("the platform's balance, ", message));
    }

    // One-signature payments. Their terms have no fee, and `payees[payeeIndex]` is their recipient.

    function _packOne(Terms memory terms) internal view returns (IBatchSettlement.Authorization memory) {
        terms.fee = 0;
        IBatchSettlement.Payment memory payment = _pack(terms);
        return IBatchSettlement.Authorization(payment.head, terms.amount, payment.nonce, payment.r, payment.vs);
    }

    /// Returns `count` funded good payments of 0.0475 USDC by different buyers, starting with buyer `first`.
    function _goodOnes(uint256 first, uint256 count)
        internal
        returns (IBatchSettlement.Authorization[] memory authorizations)
    {
        authorizations = new IBatchSettlement.Authorization[](count);
        for (uint256 i; i < count; ++i) {
            Terms memory terms = _terms(first + i);
            usdc.mint(terms.from, terms.amount);
            authorizations[i] = _packOne(terms);
        }
    }

    function _noSweep() internal pure returns (IBatchSettlement.Sweep memory sweep) {}

    function _sweepOf(uint256[] memory splits) internal view returns (IBatchSettlement.Sweep memory) {
        return IBatchSettlement.Sweep(address(factory), SWEEP_GAS, splits);
    }

    function _settleOnes(
        IBatchSettlement.Authorization[] memory authorizations,
        IBatchSettlement.Sweep memory sweep
    ) internal returns (bytes memory) {
        return settlement.settleAuthorizations(_batch(), payees, authorizations, new bytes[](0), sweep);
    }
}
